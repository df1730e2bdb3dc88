// Show PLANS in #plans.
