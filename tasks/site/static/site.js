// The navigation is long: show where the page is in it.
document.addEventListener("DOMContentLoaded", () => {
  const list = document.querySelector(".sidebar-scroll");
  const page = list?.querySelector(".current-page");
  if (page) {
    const below = page.getBoundingClientRect().top - list.getBoundingClientRect().top;
    list.scrollTo({top: below - list.clientHeight / 3, behavior: "instant"});
  }
});
