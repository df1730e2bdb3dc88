"""`braid comply`: tasks that specify what their answer must look like."""
