const list = document.querySelector("#plans");
const yearly = document.querySelector("#yearly");

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function price(plan) {
  return yearly.checked ? `$${plan.month * 10} / year` : `$${plan.month} / month`;
}

function show() {
  list.replaceChildren(
    ...PLANS.map((plan) => {
      const card = element("section", plan.popular ? "plan popular" : "plan", "");
      card.append(element("h2", "", plan.name), element("p", "price", price(plan)));
      if (plan.popular) card.append(element("span", "badge", "Most popular"));
      return card;
    }),
  );
}

yearly.addEventListener("change", show);
show();
