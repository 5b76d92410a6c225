// The navigation is long: show where the page is in it.
document.addEventListener("DOMContentLoaded", () => {
  const list = document.querySelector(".sidebar-scroll");
  const page = list?.querySelector(".current-page");
  if (page) {
    list.scrollTop = page.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 3;
  }
});
