"""What is expected of an authorization server like this one: a checklist, and the tests that prove each line of it.

Three lists in one: security of the server ("O", by area), what real client programs need so as not to break ("C"), and what was
promised for the login as a whole ("A"). Each line is one sentence in our words with the tests that fail when it is not so, or
the reason why it does not hold here. test_identity_manifest.py holds the table against the tests; for people it is told again
in docs/security.md. What the protocol itself asks is in requirements.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Line(NamedTuple):
    id: str
    rule: str
    tests: tuple[str, ...]  # file::name, below tests/
    but: str = ""  # what of the usual advice is otherwise here, and why


class NotDone(NamedTuple):
    """A line that does not hold, and why."""

    id: str
    rule: str
    reason: str
    told_as: tuple[str, ...]  # words of the lines that docs/security.md has about it


# Areas and how many lines each has.
EXTENT: Final[Mapping[str, int]] = MappingProxyType(
    {"O4.1": 16, "O4.2": 7, "O4.3": 5, "O4.4": 8, "O4.5": 5, "O4.6": 6, "C4": 17, "A": 5}
)

_L = Line
_HABITS = "e2e/test_client_habits.py::test_"


def _of(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{file}.py::test_{name}" for name in names)


DEVICE: Final = (
    _L("O4.1-01", "a device code has 256 random bits, and only its hash is kept; no log has it", (
        *_of("auth/authorization/test_device_codes", "a_code_is_eight_letters_in_two_groups_and_the_device_code_has_256_bits", "the_store_holds_neither_code", "codes_do_not_show_in_a_repr"),
        *_of("e2e/test_no_secret_in_logs", "no_secret_is_in_the_servers_log_at_any_level", "no_secret_is_stored_in_clear"),
    )),
    _L("O4.1-02", "a user code is eight letters of twenty, kept as a MAC under a key of the server, and unique among those that wait", (
        *_of("auth/authorization/test_device_codes", "a_code_is_eight_letters_in_two_groups_and_the_device_code_has_256_bits", "the_store_holds_neither_code", "a_code_in_use_is_not_given_out_again"),
    )),
    _L("O4.1-03", "case, dashes, spaces and foreign letters are taken out before anything is looked up", (
        *_of("auth/authorization/test_device_codes", "a_code_is_understood_however_it_is_typed", "what_is_no_code_is_not_looked_up"),
        *_of("auth/pages/test_browser_guesses", "what_cannot_be_a_code_is_no_guess"),
    )),
    _L("O4.1-04", "a code lives ten minutes (one to fifteen by settings), is polled every five seconds, and its page has a short address", (
        *_of("auth/authorization/test_device_codes", "a_code_is_eight_letters_in_two_groups_and_the_device_code_has_256_bits", "a_lifetime_outside_its_bounds_is_a_mistake_in_the_configuration"),
        *_of("auth/endpoints/test_oauth_endpoints", "a_device_login_from_asking_to_refreshing"),
    )),
    _L("O4.1-05", "answers to a poll come in one order, and haste makes the interval longer, up to thirty seconds", (
        *_of("auth/grant_types/test_device_grant", "answers_come_in_order", "a_second_of_haste_is_forgiven_and_the_interval_grows_to_thirty", "polling_too_early_slows_down_until_approval_beats_it"),
    ), but="a whole second of haste is forgiven, because clients round; and the first poll is never early"),
    _L("O4.1-06", "a code gives tokens once, and its second use ends what the first gave", (
        *_of("auth/grant_types/test_device_grant", "a_used_code_is_refused_and_ends_the_login_it_gave", "losing_the_race_for_the_row_gives_nothing"),
        *_of("auth/grant_types/test_parallel_redemption", "twenty_parallel_redemptions_of_a_code_give_one_login"),
    )),
    _L("O4.1-07", "when a code is redeemed, client, user and approval are looked at again", (
        *_of("auth/grant_types/test_device_grant", "an_approval_does_not_outlive_its_user", "a_user_disabled_after_approving_gets_no_login", "a_server_that_is_gone_from_the_configuration_gets_no_new_logins"),
        *_of("auth/endpoints/test_oauth_endpoints", "a_disabled_client_is_an_unknown_one"),
        *_of("auth/people/test_people", "a_code_that_was_approved_before_the_account_ended_is_worth_nothing_after"),
    )),
    _L("O4.1-08", "only clients with the device grant get codes, for scopes of client and user, and for the resource that was asked for", (
        *_of("auth/authorization/test_device_codes", "a_client_without_the_grant_gets_no_code", "scopes_are_limited_to_what_the_client_may_ask_for", "nobody_is_given_more_than_the_user_may_have", "a_resource_that_is_not_ours_is_refused_and_ours_is_remembered"),
        *_of("auth/grant_types/test_device_grant", "a_foreign_resource_consumes_nothing"),
    )),
    _L("O4.1-09", "codes under way are capped per client and network, per minute, and in all: 429 with Retry-After, never on well-known documents", (
        *_of("auth/authorization/test_device_codes", "the_sixth_code_of_a_requester_waits_for_the_first_to_end", "one_network_starts_twenty_logins_a_minute", "there_is_a_roof_over_all_waiting_codes"),
        *_of("auth/endpoints/test_oauth_endpoints", "a_cap_on_codes_says_when_to_come_back"),
        *_of("auth/endpoints/test_oauth_metadata", "documents_are_never_rate_limited"),
    )),
    _L("O4.1-10", "nobody who is not signed in can have a user code looked up", (
        *_of("auth/pages/test_browser_approval", "without_a_session_no_code_is_looked_up"),
    )),
    _L("O4.1-11", "wrong codes are few: five per session, ten per account, sixty a minute in all, and one answer for every wrong one", (
        *_of("auth/pages/test_browser_guesses", "a_session_has_five_wrong_codes_and_then_not_even_the_right_one_works", "entry_stays_closed_for_a_quarter_of_an_hour_after_the_last_wrong_code", "an_account_has_ten_wrong_codes_however_many_sessions_it_opens", "the_server_looks_up_sixty_wrong_codes_a_minute_whoever_asks", "parallel_guesses_cannot_pass_together", "unknown_expired_denied_approved_and_used_codes_get_one_answer_and_only_who_guesses_is_counted"),
    )),
    _L("O4.1-12", "a page with every fact is always shown before a device is let in; looking approves nothing, and Deny is the easy choice", (
        *_of("auth/pages/test_browser_approval", "the_confirm_page_shows_every_fact", "a_get_decides_nothing", "a_link_opened_by_hand_shows_the_request_at_once", "a_link_on_another_site_only_fills_the_form_in_and_uses_up_no_tries", "texts_that_a_requester_claims_stay_texts"),
        *_of("auth/clients/test_registered_on_pages", "a_device_of_a_program_that_registered_itself_is_told_since_when_it_is_known"),
        *_of("e2e/test_pages_in_chromium", "pressing_enter_on_the_confirm_page_denies", "approve_is_not_there_at_first_for_pointer_or_keyboard"),
    ), but="no place is guessed from an address, for want of data that works offline; and a program without a secret is never called verified here, whatever its domain: no redirect proves that it is the one"),
    _L("O4.1-13", "a request from another network is marked, and asks for a passkey or passphrase that is less than a minute old", (
        *_of("auth/pages/test_browser_approval", "from_another_network_the_page_warns", "later_the_passphrase_is_asked_for_and_checked_before_approving", "the_passphrase_cannot_be_left_out_by_waiting_on_an_old_page", "the_deciding_job_itself_asks_for_the_passphrase_however_it_was_reached"),
        *_of("auth/people/test_passkeys", "a_device_on_another_network_is_let_in_with_a_passkey", "no_lie_lets_a_device_on_another_network_in"),
        *_of("auth/people/test_user_accounts", "the_same_network_is_a_24_or_a_64_or_this_machine"),
    )),
    _L("O4.1-14", "the owner decides from where devices are approved, and which clients may use device login at all", (
        *_of("auth/pages/test_browser_approval", "the_policy_says_from_where_a_device_can_be_approved_and_denying_always_works"),
        *_of("auth/authorization/test_device_codes", "a_client_without_the_grant_gets_no_code"),
    )),
    _L("O4.1-15", "after approving there is a plain last page and an audit row; what has access is listed and ended by one click", (
        *_of("auth/pages/test_browser_approval", "a_code_is_entered_looked_at_and_approved"),
        *_of("auth/authorization/test_device_codes", "every_decision_leaves_an_audit_row"),
        *_of("auth/pages/account/test_account_page", "a_person_sees_their_own_logins_in_words_and_ends_one_at_once"),
    )),
    _L("O4.1-16", "approving in the terminal shows the same facts and asks first", (
        *_of("e2e/test_readme", "the_walk_through_ends_with_a_login_approved_on_another_machine_and_a_tools_answer"),
        *_of("e2e/test_approval_in_terminal", "approving_in_a_terminal_shows_every_fact_and_nothing_happens_without_a_yes"),
    )),
)  # fmt: skip

PAGES: Final = (
    _L("O4.2-01", "codes only, with PKCE S256 for every client; a code is random, hashed, lives a minute, is bound to all that was agreed, and works once; nothing is used up by a wrong request", (
        *_of("auth/authorization/test_authorize_requests", "whatever_else_is_wrong_is_told_at_the_programs_address"),
        *_of("auth/grant_types/test_authorization_codes", "a_code_gives_a_login_with_what_was_agreed", "a_wrong_exchange_is_refused_and_uses_nothing_up", "a_code_lives_sixty_seconds", "a_code_that_comes_twice_ends_the_login_it_made", "a_code_of_another_client_is_refused_and_not_used_up", "a_verifier_that_the_standard_does_not_know_never_fits"),
        *_of("auth/pages/test_browser_consent", "no_code_is_in_the_audit_trail_or_stored_as_it_is"),
        *_of("auth/grant_types/test_parallel_codes", "twenty_parallel_redemptions_of_a_code_give_one_login_and_end_it"),
    ), but="a code that a person carries by hand from another machine has five minutes"),
    _L("O4.2-02", "without a client and an address that is its own nobody is redirected; addresses are compared letter by letter but for a loopback port, and dangerous ones are never taken", (
        *_of("auth/authorization/test_authorize_requests", "a_request_without_a_safe_way_back_is_answered_by_a_page_of_ours", "a_disabled_client_and_one_without_addresses_have_no_way_back"),
        *_of("auth/clients/test_redirect_uris", "addresses_of_honest_clients_are_taken", "addresses_that_execute_or_mislead_are_refused", "a_registered_address_fits_whatever_loopback_port_it_comes_with", "any_other_address_does_not_fit"),
    )),
    _L("O4.2-03", "every answer has the issuer once, letter by letter, and the state; it is a 303 that is not stored and leaves no referrer", (
        *_of("auth/authorization/test_authorize_requests", "a_redirect_address_with_an_issuer_of_its_own_gives_ours_once", "the_answer_on_another_loopback_name_carries_that_name"),
        *_of("auth/clients/test_redirect_uris", "an_answer_comes_once_whatever_the_address_had_in_its_query"),
        *_of("auth/pages/test_html_shell", "a_redirect_is_a_303_that_is_not_stored_and_leaves_no_referrer"),
        f"{_HABITS}an_answer_and_an_error_carry_the_issuer_letter_by_letter",
    )),
    _L("O4.2-04", "a person is asked for each new program, address, scope and resource; the domain comes first, names are claims, no picture is fetched, and a yes lasts ninety days at most", (
        *_of("auth/pages/test_browser_consent", "a_program_that_registered_itself_is_called_unverified_and_its_name_a_claim", "a_program_with_a_document_is_called_by_its_domain", "the_page_says_where_the_login_goes_for_how_long_and_as_whom", "the_same_is_not_asked_again_and_anything_more_is", "a_yes_is_forgotten_after_its_days", "a_client_with_other_redirect_addresses_is_asked_about_anew", "a_yes_is_one_persons_own", "a_yes_that_left_something_out_is_no_yes_to_all_of_it"),
        *_of("auth/pages/test_html_shell", "no_page_has_a_script_an_inline_style_or_anything_from_elsewhere"),
        *_of("auth/clients/test_registered_on_pages", "a_picture_that_a_program_names_is_neither_fetched_nor_shown"),
    )),
    _L("O4.2-05", "forms carry a token of their session and purpose and come from our own pages; cookies are host-bound, new at sign-in, idle after twelve hours and over after seven days; some acts ask for proof anew", (
        *_of("auth/people/test_browser_sessions", "on_https_the_cookie_is_host_bound_and_hsts_is_set", "the_cookie_is_256_bits_and_only_its_hash_is_stored", "signing_in_changes_the_cookie_so_that_a_planted_one_opens_nothing", "a_session_is_idle_after_twelve_hours", "a_session_ends_after_seven_days_however_busy", "a_form_without_its_token_does_nothing", "a_token_of_another_browser_does_not_fit", "a_token_of_another_form_does_not_fit", "a_form_must_come_from_our_own_page"),
        *_of("auth/pages/test_browser_consent", "no_other_site_can_send_the_form", "a_form_is_good_for_its_own_request_alone"),
        *_of("auth/pages/account/test_account_page", "the_owner_ends_anybodys_login_after_a_fresh_proof_only"),
        *_of("console/owner/test_people_pages", "every_act_wants_a_proof_that_is_young", "no_act_is_done_without_the_token_of_its_own_page_and_session"),
        *_of("e2e/test_pages_in_chromium", "a_page_on_another_port_can_neither_send_our_forms_nor_frame_our_pages"),
    )),
    _L("O4.2-06", "every page has a policy without foreign content, cannot be framed, sniffed or cached, and its forms lead to us, or to the program that was agreed to", (
        *_of("auth/pages/test_html_shell", "every_page_has_the_headers_that_keep_it_from_being_framed_sniffed_cached_or_scripted", "a_nonce_is_used_once"),
        *_of("auth/pages/test_browser_consent", "the_page_can_be_neither_framed_nor_kept_and_its_forms_lead_to_us_the_program_and_on_from_there"),
        *_of("auth/people/test_passkeys", "only_scripted_pages_may_run_a_script_and_it_has_the_nonce_of_the_reply"),
        *_of("e2e/test_consent_in_chromium", "a_program_is_let_in_without_javascript_and_the_browser_follows_to_its_listener"),
    )),
    _L("O4.2-07", "passphrases are long and hashed slowly, two at a time; guesses are few per account and network, and unknown names look like known ones; passkeys verify their person and count once", (
        *_of("auth/people/test_user_accounts", "a_hash_is_argon2id_with_19_mib_two_passes_and_one_lane", "an_unfit_passphrase_is_refused", "the_hash_that_stands_in_for_nobody_costs_what_a_real_one_costs"),
        *_of("auth/pages/test_browser_sign_in", "five_wrong_passphrases_close_the_account_for_a_quarter_of_an_hour_whatever_the_address", "twenty_failures_close_a_network_for_every_name", "the_wait_grows_after_the_third_wrong_passphrase", "a_wrong_passphrase_a_wrong_name_and_a_disabled_account_get_one_answer_and_one_hash_each", "parallel_guesses_are_counted_before_they_are_hashed"),
        *_of("run/test_hashing", "however_many_sign_in_at_once_two_passphrases_are_hashed_at_a_time"),
        *_of("auth/people/test_passkeys", "no_lie_of_an_authenticator_signs_anybody_in", "an_answer_counts_once", "an_answer_counts_for_two_minutes", "a_counter_that_goes_back_or_stands_still_is_a_copy", "no_question_is_put_at_an_address_without_a_name", "on_a_public_name_the_name_is_the_issuers_and_the_origin_https"),
    )),
)  # fmt: skip

REGISTRATION: Final = (
    _L("O4.3-01", "a registration is a small JSON object with few and safe addresses; texts are cut and cleaned; unknown members are ignored; a secret is made only where one is wanted, shown once and hashed", (
        *_of("auth/clients/test_registration", "what_real_programs_send_is_registered_and_repeated_to_them", "what_cannot_be_registered_is_refused_by_the_name_of_the_member", "what_is_no_registration_is_refused_in_words_and_leaves_nothing", "texts_are_made_plain_and_cut_before_anybody_reads_them", "a_public_program_gets_no_word_of_a_secret_and_others_get_one_that_works", "neither_secret_nor_registration_token_is_in_the_database", "a_device_program_logs_in_with_what_it_registered"),
    ), but="application_type decides nothing for anybody: addresses are judged by themselves"),
    _L("O4.3-02", "programs that register themselves are called unverified, are no machines, and are forgotten when nobody lets them in; the owner may ask for a token or switch it off", (
        *_of("auth/pages/test_browser_consent", "a_program_that_registered_itself_is_called_unverified_and_its_name_a_claim"),
        *_of("auth/clients/test_registration", "the_grants_of_a_registration_are_those_and_no_more", "what_cannot_be_registered_is_refused_by_the_name_of_the_member", "where_it_is_off_nothing_is_announced_and_whoever_asks_is_told", "with_a_token_only_whoever_has_it_registers", "a_network_registers_so_many_in_a_quarter_of_an_hour_and_that_survives_a_restart", "a_secret_that_a_program_got_by_itself_makes_it_no_better_known_to_a_person"),
        *_of("store/test_store_reaping", "one_that_nobody_let_in_goes_after_a_week_and_one_that_was_let_in_after_a_season"),
    )),
    _L("O4.3-03", "an address is a client id only in one plain form, and its document must name itself, its addresses and no secret", (
        *_of("auth/clients/test_client_metadata", "an_address_with_a_path_may_be_a_client_id", "an_address_that_is_written_in_any_unusual_way_may_not", "a_bad_document_is_refused_and_says_why", "what_is_no_json_object_is_no_document"),
        *_of("auth/clients/test_client_documents", "redirect_addresses_elsewhere_are_left_out_and_the_operator_is_told", "a_bad_address_is_refused_before_anything_is_asked_or_written"),
    )),
    _L("O4.3-04", "a document is fetched from the public address that was checked, once for all who want it, without redirects, proxies or credentials, within seconds and a few KiB", (
        *_of("lib/http_client/test_pinned_fetch", "a_name_that_leads_elsewhere_the_second_time_leads_nowhere_else", "nothing_is_connected_to_unless_every_address_is_public", "no_redirect_is_followed", "a_certificate_for_another_name_is_not_accepted", "a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not", "what_could_unfold_is_not_taken", "who_drips_is_given_up_on", "neither_cookies_nor_credentials_go_along", "fifty_who_want_the_same_cause_one_exchange", "a_body_of_unknown_length_is_bounded_to_the_byte_as_well"),
        *_of("lib/http_client/test_public_addresses", "every_other_address_is_not", "an_address_that_is_routed_to_everybody_is_public"),
        *_of("auth/clients/test_client_documents", "strangers_of_one_network_cause_so_many_fetches_and_no_more", "fifty_at_once_cause_one_fetch_and_count_once"),
    )),
    _L("O4.3-05", "copies are kept as long as their server says, within bounds, and a week more while it is silent; failures are remembered for a minute; the owner may list hosts or switch it off", (
        *_of("auth/clients/test_client_documents", "how_long_a_copy_is_fresh_is_its_servers_word_within_bounds", "an_old_copy_goes_on_for_a_week_while_its_address_cannot_be_reached", "a_failure_is_remembered_for_a_minute", "only_listed_hosts_are_asked_where_there_is_a_list", "where_documents_are_off_no_address_is_a_client", "where_only_pinned_documents_count_nothing_else_does"),
        *_of("store/test_client_sweep", "beyond_the_newest_the_longest_unseen_go"),
        *_of("auth/clients/test_client_assertions", "keys_at_an_address_are_fetched_once_and_remembered_for_as_long_as_they_say", "old_keys_count_while_their_address_is_silent_and_not_once_it_says_there_are_none"),
    )),
)  # fmt: skip

TOKENS: Final = (
    _L("O4.4-01", "an access token is an ES256 at+jwt for one audience, with an opaque subject", (
        *_of("auth/tokens/test_access_tokens", "a_token_says_exactly_this", "a_token_never_outlives_its_login"),
        *_of("auth/jose/test_es256", "a_general_library_accepts_what_we_sign_and_we_what_it_signs"),
        *_of("auth/client_authentication/test_dpop_proofs", "a_token_says_which_key_it_is_bound_to"),
    )),
    _L("O4.4-02", "it lives an hour, and ending a login counts from the next request on", (
        *_of("auth/endpoints/test_oauth_endpoints", "a_device_login_from_asking_to_refreshing", "revoking_either_token_ends_the_whole_login_at_once"),
        *_of("auth/tokens/test_access_tokens", "a_revocation_counts_from_its_commit_on"),
        *_of("auth/tokens/test_live_logins", "a_read_that_began_before_a_revocation_and_ends_after_it_is_done_again"),
    )),
    _L("O4.4-03", "of a token nothing is believed that its key does not allow: length, algorithm, kid, typ, crit, issuer, audience and times are checked, then login, client and user; missing scopes are named all at once", (
        *_of("auth/tokens/test_access_tokens", "what_is_not_our_token_is_refused", "the_edges_of_what_is_accepted", "a_token_of_one_server_opens_no_other", "insufficient_scope_names_all_scopes_that_are_needed"),
        *_of("auth/tokens/test_token_corpus", "nothing_of_the_corpus_opens_anything_and_each_is_told_how_to_do_better", "what_the_header_points_to_is_never_looked_at_when_the_signature_is_ours"),
        *_of("e2e/test_keys_and_audit", "no_token_of_the_corpus_gets_past_the_listener"),
        *_of("transport/admission/test_admission", "a_tool_that_the_login_does_not_cover_is_refused_with_all_that_it_needs"),
        *_of("auth/clients/test_client_assertions", "what_is_forged_or_loose_proves_nothing_and_says_what_is_wrong"),
    )),
    _L("O4.4-04", "checked tokens are remembered by their hash, in bounded number, for a minute at most, and their login is still asked about", (
        *_of("auth/tokens/test_access_tokens", "remembered_tokens_are_bounded_and_the_oldest_goes_first", "a_remembered_token_is_forgotten_when_it_expires", "a_revocation_counts_from_its_commit_on"),
        *_of("auth/tokens/test_remembered_tokens", "a_token_is_read_again_after_a_minute"),
    )),
    _L("O4.4-05", "a token counts in its header alone, and a challenge has an error only where a token was sent", (
        *_of("auth/tokens/test_access_tokens", "the_challenge_has_an_error_only_if_a_token_was_sent", "a_token_in_the_query_or_the_form_is_not_looked_at"),
        *_of("e2e/test_keys_and_audit", "no_token_of_the_corpus_gets_past_the_listener"),
    )),
    _L("O4.4-06", "signing keys are sealed, change every ninety days, are published a day before they sign and stay as long as their tokens; an emergency drops them at once; the published set has three public keys at most", (
        *_of("auth/keys/test_signing_keys", "a_sealed_key_gives_nothing_away_and_opens_with_its_own_key_only", "the_document_has_public_members_only", "the_key_set_is_served_with_an_etag_and_may_be_cached_for_five_minutes"),
        *_of("auth/keys/test_key_rotation", "what_is_due_follows_from_the_keys_and_the_time", "a_year_passes_and_the_key_changes_four_times_a_day_after_it_was_announced", "whatever_happens_one_key_signs_three_are_published_at_most_and_no_token_outlives_its_key", "an_emergency_ends_every_token_at_once_and_logins_go_on_by_refresh", "two_processes_that_rotate_at_once_make_one_key"),
        *_of("store/test_store_keyfile", "a_first_start_makes_a_private_key_file_and_the_next_reads_the_same_key", "a_key_file_open_to_others_is_refused"),
        *_of("e2e/test_keys_and_audit", "keys_change_under_load_and_an_emergency_costs_each_login_one_refresh"),
    )),
    _L("O4.4-07", "documents may be kept for five minutes, and a server whose documents promise what it does not do does not start", (
        *_of("auth/endpoints/test_oauth_metadata", "documents_are_open_to_any_origin_cacheable_and_read_only", "every_endpoint_that_is_published_answers"),
        *_of("auth/test_self_test", "what_is_announced_is_what_there_is", "a_promise_that_is_not_kept_is_named", "a_private_member_in_the_key_set_is_named_and_not_shown"),
        *_of("e2e/test_keys_and_audit", "a_store_whose_keys_are_broken_does_not_start_and_says_so"),
    )),
    _L("O4.4-08", "claims are told by the wall clock, and whoever watches the log is told when that clock is set", (
        *_of("run/test_clock_watch", "a_clock_that_is_set_is_told_of_once", "the_clock_that_is_compared_with_never_goes_back"),
        *_of("auth/keys/test_signing_keys", "with_a_clock_set_back_behind_every_key_the_first_one_still_signs"),
    ), but="limits are counted by the wall clock as well: they are kept in the store, so that a restart does not clear them, and no other clock outlives a process"),
)  # fmt: skip

REFRESH: Final = (
    _L("O4.5-01", "refresh tokens rotate, end after thirty unused days and at the login's own end, belong to client, resource and scope; a request may narrow its token, never the login", (
        *_of("auth/grants/test_refresh_chain", "a_refresh_gives_the_successor_and_moves_the_idle_end", "thirty_days_after_the_login_a_person_must_approve_again", "an_unused_login_ends_before_its_absolute_end", "scope_narrows_for_one_token_and_the_login_keeps_its_own", "more_scope_than_granted_is_refused_before_anything_is_used_up", "a_foreign_resource_is_refused_before_anything_is_used_up", "another_clients_token_is_worth_nothing_and_harms_nothing"),
        *_of("auth/grant_types/test_authorization_codes", "a_code_gives_a_login_with_what_was_agreed"),
    )),
    _L("O4.5-02", "a refresh token is login, counter and MAC: nothing of it is kept, a forged one is known without the store, and the same token always has the same successor", (
        *_of("auth/grants/test_refresh_chain", "a_token_names_its_grant_its_place_and_proves_both", "nothing_but_our_own_tokens_is_read", "no_part_of_a_token_can_be_changed", "a_chain_never_branches_and_old_tokens_never_work"),
        *_of("auth/endpoints/test_oauth_endpoints", "no_secret_of_a_login_is_in_the_store_or_its_audit_trail"),
        *_of("auth/grant_types/test_parallel_redemption", "twenty_parallel_refreshes_give_one_successor_and_twenty_good_access_tokens"),
    )),
    _L("O4.5-03", "the token before the present one counts for a minute more; anything older ends the login, is in the audit trail and wakes whoever watches the log", (
        *_of("auth/grants/test_refresh_chain", "the_same_token_within_a_minute_gives_the_same_successor", "an_older_token_ends_the_login_even_at_once"),
        *_of("e2e/test_refresh_races", "a_replay_outside_the_window_ends_the_login_for_both_and_shows_in_the_audit"),
        *_of("run/test_logged_decisions", "what_should_wake_somebody_is_a_warning_and_routine_is_not_shown"),
    ), but="nobody is written to: the server sends no mail. It is a warning in the log"),
    _L("O4.5-04", "a thief and a victim cannot take turns unnoticed", (
        *_of("auth/grants/test_refresh_chain", "a_thief_and_a_victim_cannot_leapfrog", "a_chain_never_branches_and_old_tokens_never_work"),
    )),
    _L("O4.5-05", "the key that refresh tokens are proven with is a sealed secret with a number, which the tokens name; it is replaced while logins go on, the old one is accepted as long as a login lasts and then destroyed, and an emergency drops all at once", (
        *_of("auth/keys/test_refresh_keys", "with_each_new_signing_key_comes_a_new_refresh_key_and_logins_go_on", "a_token_of_the_old_key_is_exchanged_for_one_of_the_new", "the_old_key_is_accepted_as_long_as_a_login_can_last_and_then_destroyed", "the_window_of_a_replay_goes_on_over_a_change_of_keys", "reuse_ends_the_login_over_a_change_of_keys", "whichever_accepted_key_a_token_is_of_the_chain_is_the_same", "a_version_that_there_is_not_is_none_of_ours", "a_token_says_which_key_proves_it_and_no_other_does", "an_emergency_leaves_logins_and_with_them_every_refresh_token_dies", "a_sealed_key_gives_nothing_away_and_opens_with_its_own_key_file_and_version_only", "a_new_start_keeps_the_keys_and_what_they_wrote", "a_start_with_another_key_file_is_refused", "a_refresh_reads_the_keys_from_the_store_only_after_they_changed"),
        *_of("store/test_store_kept_out", "no_key_of_any_kind_and_no_agreement_of_a_copy_lives_again"),
        *_of("e2e/test_keys_and_audit", "who_took_every_key_goes_on_after_an_emergency_and_not_after_one_that_ends_logins"),
    )),
)  # fmt: skip

ENDPOINTS: Final = (
    _L("O4.6-01", "clients prove themselves by one method everywhere, compared in constant time; a signed assertion is for us, short-lived and counts once", (
        *_of("auth/clients/test_client_assertions", "a_client_has_one_way_to_prove_itself_at_every_endpoint", "what_is_forged_or_loose_proves_nothing_and_says_what_is_wrong", "an_assertion_counts_once", "of_twenty_parallel_uses_of_one_assertion_one_counts", "the_audience_is_the_issuer_or_the_token_endpoint_also_as_it_was_typed"),
        *_of("auth/clients/test_oauth_clients", "a_secret_is_shown_once_and_kept_as_a_hash", "secrets_compare_and_do_not_print"),
    ), but="a secret may be shown in either of its two places, since clients mix them up"),
    _L("O4.6-02", "endpoints of programs take small posted forms without repetitions and are never stored; 401 names Basic only to who used it; revoking ends the login; only clients that may are told about tokens", (
        *_of("auth/endpoints/test_oauth_endpoints", "these_endpoints_take_posts_and_answer_preflights", "a_malformed_form_is_refused_in_words", "a_form_in_the_address_is_an_invalid_request_and_names_where_it_belongs", "what_stands_in_the_address_beside_a_form_is_not_looked_at", "an_unknown_client_is_401_and_basic_is_named_only_to_who_used_it", "revoking_either_token_ends_the_whole_login_at_once", "revoking_what_is_unknown_is_fine_and_what_is_anothers_is_not"),
        *_of("auth/endpoints/test_token_introspection", "only_clients_that_may_ask_are_answered_and_refusals_are_written_down"),
        f"{_HABITS}programs_are_never_sent_a_page_and_never_a_fault",
    )),
    _L("O4.6-03", "the issuer is a setting; unknown names are refused, and forwarded ones believed from listed proxies only", (
        *_of("run/test_public_names", "behind_a_trusted_proxy_everything_speaks_of_the_issuer", "without_a_trusted_proxy_what_is_forwarded_is_not_believed"),
        *_of("transport/http/test_http_guard", "every_other_name_is_refused_there", "loopback_names_are_refused_off_loopback"),
        *_of("transport/http/test_http_proxy", "anybody_else_is_not", "a_listed_proxy_is_believed"),
        *_of("auth/endpoints/test_oauth_metadata", "off_loopback_only_the_configured_name_is_published", "on_loopback_every_document_names_the_host_that_was_typed"),
    ), but="an unknown name is 403, not 421, as the protocol's own rule against rebinding has it; on loopback documents repeat the allowed name that was typed, while tokens are for the configured one alone"),
    _L("O4.6-04", "only machines that the owner added get tokens for themselves: without a refresh token, for an hour, under a name that no person can have", (
        *_of("auth/grant_types/test_client_credentials_grant", "a_machine_gets_an_access_token_and_no_refresh_token_and_is_itself", "no_user_can_ever_have_the_name_of_a_machine", "only_what_the_operator_added_for_it_may"),
    )),
    _L("O4.6-05", "requests can be pushed beforehand; tokens can be bound to a key, and are worth nothing without it; a listed provider's word to a program that proves itself counts once, where the owner said so", (
        *_of("auth/endpoints/test_pushed_requests", "a_pushed_request_is_answered_like_any_other", "it_belongs_to_its_client_and_nothing_beside_it_counts", "a_pushed_request_is_decided_once_and_can_be_looked_at_before"),
        *_of("auth/client_authentication/test_dpop_proofs", "a_stolen_token_is_worth_nothing_without_its_key", "a_bad_proof_opens_no_resource", "a_bad_proof_gets_no_token_and_uses_nothing_up", "a_clock_may_be_a_little_off", "a_proof_counts_once_at_the_token_endpoint_and_the_trail_says_so", "a_proof_counts_once_at_a_resource_also_ten_times_at_once", "a_refresh_goes_on_with_the_same_key_alone"),
        *_of("auth/tokens/test_bound_tokens", "a_proof_that_counted_before_a_restart_opens_nothing_after_it_whatever_its_clock_says", "a_client_that_calls_just_after_a_restart_is_let_in_at_its_second_try_whatever_its_clock_says"),
        *_of("auth/grants/test_identity_assertions", "what_is_forged_or_loose_lets_nobody_in_and_says_what_is_wrong", "an_assertion_counts_once_for_as_long_as_it_could_count", "people_who_are_not_listed_or_whose_time_is_over_are_not_let_in", "only_programs_with_the_grant_and_with_something_to_show_may_ask", "without_a_provider_for_it_nothing_of_it_exists"),
        *_of("e2e/test_enterprise_served", "an_official_sdk_brings_a_providers_word_and_calls_a_tool"),
    ), but="each is offered, none is demanded; a proof needs a nonce of ours only where it may be older than the process, and a used one at a resource is remembered by this process alone, for its minute, where the rows are in a file; other exchanges of tokens (RFC 8693) are not offered"),
    _L("O4.6-06", "every decision is an audit row and a line in the log with who, client, login, address, outcome and reason, and never a secret", (
        *_of("e2e/test_no_secret_in_logs", "the_log_tells_of_the_whole_life", "no_secret_is_in_the_servers_log_at_any_level", "no_secret_is_stored_in_clear"),
        *_of("run/test_logged_decisions", "an_event_says_who_from_where_and_why_and_leaves_out_what_is_empty"),
        *_of("e2e/test_keys_and_audit", "the_trail_tells_who_came_in_and_can_be_filtered_and_exported_whole", "whoever_writes_into_the_database_is_found_out_while_serving_and_in_the_file", "who_may_write_the_database_and_has_no_key_leaves_no_sound_trail"),
        *_of("store/test_store_audit_chain", "an_altered_row_is_named", "what_was_taken_out_put_in_or_cut_off_is_named"),
    ), but="not even part of a user code is written down: rows name the request by an id of its own"),
)  # fmt: skip

CLIENTS: Final = (
    _L("C4-01", "the resource is the very address that was typed, under each name of this machine", (
        f"{_HABITS}the_resource_is_the_very_address_that_was_typed",
    )),
    _L("C4-02", "answers and errors carry the issuer exactly as the metadata has it, and say beforehand that they do", (
        f"{_HABITS}an_answer_and_an_error_carry_the_issuer_letter_by_letter",
    )),
    _L("C4-03", "the paths that programs guess are the ones there are: /authorize, /token and /register at the root", (
        f"{_HABITS}a_program_that_was_started_again_refreshes_at_the_roots_token_before_it_looks_anything_up",
    )),
    _L("C4-04", "a listener on this machine may have any port, under each of its three names, and exactly its path", (
        f"{_HABITS}a_listener_may_have_any_port_and_no_other_path_or_name",
    )),
    _L("C4-05", "the page whose form leads to a program does not forbid the browser to go there", (
        f"{_HABITS}the_page_whose_form_leads_to_a_program_is_allowed_to",
        *_of("e2e/test_consent_in_chromium", "a_program_is_let_in_without_javascript_and_the_browser_follows_to_its_listener", "whoever_agreed_before_comes_back_from_sign_in_straight_to_the_program"),
    )),
    _L("C4-06", "a refresh token that is sent twice at once is answered twice, and one that comes late is refused", (
        f"{_HABITS}a_refresh_token_that_is_sent_twice_at_once_is_answered_twice",
        *_of("e2e/test_refresh_races", "a_replay_outside_the_window_ends_the_login_for_both_and_shows_in_the_audit"),
    )),
    _L("C4-07", "access tokens live for ten minutes at least, and a session goes on under the next one", (
        f"{_HABITS}a_token_lives_for_minutes_and_a_session_outlives_it",
        *_of("auth/tokens/test_access_tokens", "lifetimes_under_ten_minutes_are_a_mistake_in_the_configuration"),
    )),
    _L("C4-08", "whatever the verb, a caller without a token is told where to get one; an error is named only where a token was wrong", (
        f"{_HABITS}whoever_knocks_is_asked_for_a_token_before_anything_else",
        *_of("e2e/test_curl_login", "every_verb_without_a_token_is_told_where_to_get_one"),
    )),
    _L("C4-09", "documents that are not there are a clean 404 in JSON", (
        f"{_HABITS}a_document_that_is_not_there_is_a_clean_404",
        *_of("e2e/test_curl_login", "a_document_that_is_not_published_is_a_clean_404"),
    )),
    _L("C4-10", "the challenge asks for all that a usual session needs, and offline_access does no harm", (
        f"{_HABITS}the_scopes_of_the_challenge_are_all_that_a_usual_session_needs",
        f"{_HABITS}who_declines_to_grant_more_is_not_asked_again_at_every_call",
    )),
    _L("C4-11", "the token endpoint understands every way in which programs write a form, answers in JSON, and each refusal makes a client do the right thing", (
        f"{_HABITS}a_form_may_name_its_letters_and_its_sender_twice_and_accept_nothing",
        f"{_HABITS}a_client_with_a_secret_shows_it_in_either_place_whichever_it_registered",
        f"{_HABITS}each_refusal_of_a_token_is_the_one_that_makes_a_client_do_the_right_thing",
        f"{_HABITS}a_resource_may_be_named_at_every_step_or_never",
        f"{_HABITS}programs_are_never_sent_a_page_and_never_a_fault",
    )),
    _L("C4-12", "a registration is repeated, understands what programs add, and one for each login is no trouble", (
        f"{_HABITS}a_registration_is_repeated_and_takes_what_programs_send",
        *_of("store/test_store_reaping", "one_that_nobody_let_in_goes_after_a_week_and_one_that_was_let_in_after_a_season"),
    )),
    _L("C4-13", "looking at the authorization address changes nothing; what cannot go on is a 400", (
        f"{_HABITS}looking_at_the_authorization_address_first_changes_nothing",
    )),
    _L("C4-14", "a device is told numbers, may poll at once, and its code is understood without dash and in small letters", (
        f"{_HABITS}a_device_is_told_numbers_polls_at_once_and_its_code_is_understood_as_it_is_typed",
    )),
    _L("C4-15", "programs that are named by a document log in also where nothing can be fetched, and it is announced only where it works", (
        f"{_HABITS}a_program_that_is_named_by_its_document_logs_in_where_nothing_can_be_fetched",
        f"{_HABITS}where_documents_are_switched_off_none_is_announced_or_taken",
        *_of("auth/clients/test_documents_over_tls", "a_well_known_client_logs_in_where_there_is_no_way_out"),
    )),
    _L("C4-16", "the metadata says outright what clients would otherwise guess", (
        f"{_HABITS}what_is_announced_says_outright_what_clients_would_otherwise_guess",
        *_of("auth/endpoints/test_oauth_metadata", "on_loopback_every_document_names_the_host_that_was_typed"),
    )),
    _L("C4-17", "sessions that programs leave behind lock nobody out and end by themselves", (
        f"{_HABITS}programs_that_leave_their_sessions_behind_lock_nobody_out",
        *_of("calls/sessions/test_sessions", "a_caller_with_too_many_loses_the_one_unused_for_longest", "a_session_nobody_uses_ends_and_one_in_use_does_not"),
    )),
)  # fmt: skip

WHOLE: Final = (
    _L("A-1", "real clients of many makers log in by themselves and call a tool", (
        *_of("e2e/test_mcp_remote", "mcp_remote_logs_in_by_device_code_and_calls_a_tool_over_stdio", "mcp_remote_registers_itself_for_a_device_login", "mcp_remote_registers_itself_and_logs_in_with_a_browser"),
        *_of("e2e/test_clients_log_in", "the_python_sdk_logs_in_and_registers", "the_typescript_sdk_logs_in_registers_and_refreshes", "the_inspector_logs_in_with_a_browser_and_calls_a_tool", "openid_client_logs_in_refreshes_and_ends_it", "oauth4webapi_finds_nothing_to_object_to", "python_libraries_that_know_nothing_of_mcp_log_in"),
        *_of("e2e/test_terminal_browser_login", "a_person_logs_in_through_a_browser_calls_refreshes_and_logs_out"),
        *_of("e2e/test_machines", "the_python_sdk_logs_in_by_itself_with_a_secret_and_with_a_signature"),
    )),
    _L("A-2", "the official suite has nothing against the authorization server, at any revision", (
        *_of("e2e/test_conformance_authorization", "the_suite_has_nothing_against_the_authorization_server"),
    )),
    _L("A-3", "whole collections of bad tokens, addresses, names and requests get nowhere", (
        *_of("auth/tokens/test_token_corpus", "nothing_of_the_corpus_opens_anything_and_each_is_told_how_to_do_better"),
        *_of("e2e/test_keys_and_audit", "no_token_of_the_corpus_gets_past_the_listener"),
        *_of("auth/clients/test_redirect_uris", "addresses_that_execute_or_mislead_are_refused", "any_other_address_does_not_fit"),
        *_of("auth/clients/test_client_metadata", "an_address_that_is_written_in_any_unusual_way_may_not"),
        *_of("lib/http_client/test_public_addresses", "every_other_address_is_not"),
        *_of("lib/http_client/test_pinned_fetch", "a_name_that_leads_elsewhere_the_second_time_leads_nowhere_else", "what_could_unfold_is_not_taken", "no_redirect_is_followed"),
        *_of("auth/pages/test_browser_guesses", "a_session_has_five_wrong_codes_and_then_not_even_the_right_one_works"),
        *_of("auth/people/test_browser_sessions", "a_form_must_come_from_our_own_page", "signing_in_changes_the_cookie_so_that_a_planted_one_opens_nothing"),
        *_of("auth/authorization/test_authorize_requests", "a_cookie_planted_before_sign_in_is_worth_nothing_after_it", "no_request_crashes_and_none_is_sent_anywhere_but_to_its_client"),
        *_of("auth/pages/test_browser_sign_in", "signing_in_never_leads_out_of_the_house"),
        *_of("e2e/test_pages_in_chromium", "a_page_on_another_port_can_neither_send_our_forms_nor_frame_our_pages"),
    )),
    _L("A-4", "parallel refreshes log nobody out, a replay ends the login and shows, and a server that is killed at any step of a login loses no finished one and makes none twice", (
        *_of("e2e/test_refresh_races", "two_refreshes_at_once_ten_times_over_log_nobody_out", "two_terminals_at_once_with_one_stored_token_both_get_their_answer", "a_replay_outside_the_window_ends_the_login_for_both_and_shows_in_the_audit"),
        *_of("e2e/test_logins_killed", "killed_at_any_step_of_a_login_what_was_finished_goes_on_and_nothing_is_made_twice"),
        *_of("auth/grant_types/test_parallel_codes", "a_server_killed_between_commit_and_answer_makes_no_second_login"),
    )),
    _L("A-5", "the README alone leads from a download to a login, and the confirm page says who is asking", (
        *_of("e2e/test_readme", "the_walk_through_ends_with_a_login_approved_on_another_machine_and_a_tools_answer"),
        *_of("e2e/test_pages_in_chromium", "the_link_with_the_code_leads_through_sign_in_to_the_confirm_page"),
        *_of("e2e/test_passkeys_in_chromium", "a_passkey_from_claim_to_approving_a_device_elsewhere"),
        *_of("auth/pages/test_browser_approval", "the_confirm_page_shows_every_fact"),
        *_of("run/test_public_names", "behind_a_trusted_proxy_everything_speaks_of_the_issuer"),
    )),
)  # fmt: skip

LINES: Final[tuple[Line | NotDone, ...]] = (
    *DEVICE, *PAGES, *REGISTRATION, *TOKENS, *REFRESH, *ENDPOINTS, *CLIENTS, *WHOLE,
)  # fmt: skip
