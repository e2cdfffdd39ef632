"""What a scan says, in the forms in which it is read: by people, by programs, by code scanning, by a workflow's log."""
