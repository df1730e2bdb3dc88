"""`braid comply`: tasks that say what their answer must look like."""
