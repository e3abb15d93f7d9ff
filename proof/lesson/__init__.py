"""`oncelog lesson`, in which the reader injects five faults and sees their effects."""
