"use strict";
// A block with data-passkey stands in a form: a button, and two hidden fields for what the authenticator says.
(() => {
  const bytes = text => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), c => c.charCodeAt(0));
  const text = buffer => buffer && btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const WORDS = {
    NotAllowedError: "That did not work: it was cancelled, or took too long. Try again, or choose another way.",
    InvalidStateError: "That device holds a passkey for this account already.",
    SecurityError: "This browser does not use passkeys at this address.",
    NotSupportedError: "That device cannot make a passkey of the kind that is needed.",
    ConstraintError: "That device cannot check that it is you, and it has to.",
  };

  async function ask(block, form) {
    const fields = new URLSearchParams({for: block.dataset.passkey, form_token: block.dataset.token});
    if (block.dataset.link) fields.set("link", block.dataset.link);
    if (form.elements.name) fields.set("name", form.elements.name.value);
    const answer = await fetch("/passkey/options", {method: "POST", body: fields, redirect: "error"});
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.problem);
    const wanted = said.publicKey;
    wanted.challenge = bytes(wanted.challenge);
    if (wanted.user) wanted.user.id = bytes(wanted.user.id);
    for (const list of [wanted.excludeCredentials, wanted.allowCredentials]) for (const each of list || []) each.id = bytes(each.id);
    const made = wanted.user ? await navigator.credentials.create({publicKey: wanted}) : await navigator.credentials.get({publicKey: wanted});
    const response = {clientDataJSON: text(made.response.clientDataJSON)};
    for (const part of ["attestationObject", "authenticatorData", "signature", "userHandle"])
      if (wanted.user ? part === "attestationObject" : part !== "attestationObject") response[part] = text(made.response[part]);
    return [said.ticket, JSON.stringify({type: made.type, rawId: text(made.rawId), response})];
  }

  for (const block of document.querySelectorAll("[data-passkey]")) {
    if (!window.PublicKeyCredential) continue;
    const form = block.closest("form"), button = block.querySelector("button"), status = block.querySelector("[role=status]");
    block.hidden = false;
    if (!form.querySelector("[type=submit]"))
      form.addEventListener("submit", event => { event.preventDefault(); button.click(); });
    button.addEventListener("click", async () => {
      if (form.elements.name && !form.elements.name.reportValidity()) return;
      button.disabled = true;
      status.textContent = "Waiting for your passkey …";
      try {
        const answers = await ask(block, form);
        block.querySelectorAll("input[type=hidden]").forEach((field, place) => { field.value = answers[place]; });
        form.submit();
      } catch (error) {
        status.textContent = WORDS[error.name] || (error.name === "Error" && error.message) || "That did not work. Load the page again, or choose another way.";
        button.disabled = false;
        button.focus();
      }
    });
  }
})();
