"""A local cluster with TLS, logins and an authorizer: `oncelog up --secure`."""
