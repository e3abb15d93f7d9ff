"""APIs about who clients are: logins, and the credentials of users."""
