"""The handlers of all APIs; each file begins with the supported versions and KIPs."""
