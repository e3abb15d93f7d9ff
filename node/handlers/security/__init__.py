"""node/handlers/security: the APIs of logins, and of the credentials of users."""
