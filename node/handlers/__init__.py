"""The handlers of all APIs.

The file of an API's handler begins with the supported versions and KIPs.
"""
