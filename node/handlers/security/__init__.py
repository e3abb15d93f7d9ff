"""The APIs of logins, and of the credentials of users."""
