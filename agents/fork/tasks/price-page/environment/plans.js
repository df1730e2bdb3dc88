const PLANS = [
  { name: "Solo", month: 9 },
  { name: "Team", month: 19, popular: true },
  { name: "Scale <50 seats", month: 49 },
];
