"""`ctx.delegate`: work handed to another agent by A2A, waited for without holding a worker."""
