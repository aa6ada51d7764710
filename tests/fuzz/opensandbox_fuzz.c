/* SPDX-License-Identifier: Apache-2.0 */
/* What strangers say to the OpenSandbox façade, by the first byte: paths with signed tickets, schedules, messages of
 * terminals, credentials and bindings, durations, policies. */
#include "api/opensandbox/handlers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_path(struct str text)
{
    const struct sandbox_info info = {.id = "iaaaaaaaaaaaaaaaaaaaa", .access_token = "token"};
    char ticket[PROXY_TICKET_MAX];
    struct proxied p;

    if (!proxy_parse(text, &p))
        return;
    assert(p.port > 0 && p.port <= UINT16_MAX && p.rest.n && p.rest.p[0] == '/');
    if (p.ticket.p)
        assert(proxy_check_ticket(&info, p.port, p.ticket)); /* nobody guesses it */
    proxy_ticket(&info, p.port, UINT32_MAX, ticket);
    assert(!proxy_check_ticket(&info, p.port, str_of(ticket + 1)));
    assert(proxy_check_ticket(&info, p.port ^ 1, str_of(ticket + 1)));
}

static void fuzz_schedule(struct str text)
{
    struct schedule s;
    uint64_t seconds;

    if (schedule_duration(text, &seconds) == 0)
        assert(seconds > 0 && seconds <= UINT32_MAX);
    if (schedule_parse(text, &s) < 0)
        return;
    assert(strspn(s.pattern, "^(0123456789|.+) $") == strlen(s.pattern) && !s.every_s == !!*s.pattern);
}

static void fuzz_message(struct str text, bool is_text, bool is_pipe)
{
    AUTO_BUF struct buf in = BUF_INIT(4096), replay = BUF_INIT(8192);
    struct str rest, one;
    struct err err;
    int kind;

    if (pty_message_read(is_text, text, is_pipe, &in, &err) != PTY_MESSAGE_TAKEN)
        assert(!buf_len(&in));
    if (buf_error(&in) < 0)
        return;
    for (rest = buf_str(&in); rest.n;) {
        assert(pty_record_take(&rest, &kind, &one) && one.n);
        assert(kind == PTY_RECORD_STDIN || (kind == PTY_RECORD_RESIZE && one.n == 4) ||
               (kind == PTY_RECORD_SIGNAL && one.n == 1));
    }
    text = str_n(text.p, MIN(text.n, (size_t)4096));
    pty_message_replay(&replay, text, text.n + 7, text.n / 2);
    assert(!text.n == !buf_len(&replay));
}

static void fuzz_vault(const json_t *json)
{
    AUTO_JSON json_t *values = json_pack("{s:s}", "a", "x"),
                     *policy = json_pack("{s:[{s:s},{s:s}]}", "rules", "allow", "*.b.c", "allow", "d.e");
    AUTO_BUF struct buf value = BUF_INIT(2 * VAULT_VALUE_MAX + 1);
    struct str name;
    struct err err;

    if (vault_read_value(json, &name, &value, &err) == 0) {
        assert(name.n && name.n <= VAULT_NAME_MAX && buf_error(&value) == 0);
        for (size_t i = 0; i < buf_len(&value); i++)
            assert(buf_data(&value)[i] != '$' || buf_data(&value)[++i] == '$'); /* refers to no secret */
    }
    if (vault_check_binding(values, policy, json, &name, &err) < 0)
        return;
    AUTO_JSON json_t *row = vault_row(json, 1);
    assert(vault_collide(json, json) && vault_collide(row, row));
    assert(vault_used(json, 0) ||
           strcmp(json_string_value(json_object_get(json_object_get(json, "auth"), "type")), "passthrough") == 0);
    for (size_t i = 0; vault_used(json, i); i++)
        assert(json_object_get(values, vault_used(json, i)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_JSON json_t *json = NULL, *policy = NULL;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct osb_hooks *hooks;
    struct err err;

    if (!size)
        return 0;
    struct str text = str_n((const char *)data + 1, size - 1);
    switch (data[0]) {
    case 'p':
        fuzz_path(text);
        break;
    case 's':
        fuzz_schedule(text);
        break;
    case 't':
    case 'b':
        fuzz_message(text, data[0] == 't', false);
        fuzz_message(text, data[0] == 't', true);
        break;
    default:
        if (json_read_object(text, false, &json, &err) < 0)
            break;
        fuzz_vault(json);
        policy = egress_read_policy(json, &err);
        (void)!hooks_read(json, &arena, &hooks, &err);
    }
    return 0;
}
