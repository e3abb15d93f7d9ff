"""A local cluster with TLS, logins and an authorizer, for `oncelog up --secure`."""
