const list = document.querySelector("#plans");
const yearly = document.querySelector("#yearly");

function show() {
  list.innerHTML = "";
  for (const plan of PLANS) {
    const price = yearly.checked ? `$${plan.month * 12} / year` : `$${plan.month} / month`;
    const badge = plan.popular ? '<span class="badge">Most popular</span>' : "";
    list.insertAdjacentHTML(
      "beforeend",
      `<section class="plan${plan.popular ? " popular" : ""}"><h2>${plan.name}</h2><p class="price">${price}</p>${badge}</section>`,
    );
  }
}

yearly.addEventListener("change", show);
show();
