"use strict";
// A button with data-copy copies the text of the element that it names; without a clipboard there is no button, and the text can be selected.
for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy), words = button.textContent;
  const select = () => { if (source.select) source.select(); else getSelection().selectAllChildren(source); };
  if (source.select) source.addEventListener("focus", select);
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(source.value ?? source.textContent); button.textContent = "Copied"; }
    catch { select(); button.textContent = "Selected: now copy it"; }
    setTimeout(() => { button.textContent = words; }, 4000);
  });
}
