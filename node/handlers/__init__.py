"""The handlers of all APIs.

Each file begins with the supported versions and KIPs.
"""
