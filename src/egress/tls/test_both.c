/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/tls/test_both.h"
#include "egress/flow/side_tcp.h"

const struct ca_leaf *both_leaf(struct test_tls *t, const char *name)
{
    struct err err;
    const struct ca_leaf *leaf;
    assert_int_equal(ca_leaf(t->ca, name, &leaf, &err), 0);
    return leaf;
}

void both_start(struct both *b, const struct ca_leaf *leaf, const char *name, struct str alpn, struct str chosen)
{
    int fds[2];
    test_tcp_pair(fds);
    test_owner_open(&b->client, NULL);
    test_owner_open(&b->server, NULL);
    b->client.side = side_tls_client(side_tcp_accept(&b->tls.rig.loop, fds[0]), b->tls.world, name, alpn, TIMEOUT_MS,
                                     &test_owner_ops, &b->client);
    b->server.side = side_tls_server(side_tcp_accept(&b->tls.rig.loop, fds[1]), b->tls.sandbox, leaf, STR_NULL, chosen,
                                     TIMEOUT_MS, &test_owner_ops, &b->server);
}

bool both_are_ready(void *ctx)
{
    const struct both *b = ctx;
    if (b->client.is_failed || b->server.is_failed)
        fail_msg("%s", b->client.is_failed ? b->client.err.msg : b->server.err.msg);
    return b->client.is_ready && b->server.is_ready;
}

void both_open(struct both *b)
{
    test_tls_open(&b->tls);
    both_start(b, both_leaf(&b->tls, NAME), NAME, STR("\x02h2\x08http/1.1"), STR("h2"));
    test_until(&b->tls.rig, both_are_ready, b);
}

void both_fini(struct both *b)
{
    test_owner_fini(&b->client);
    test_owner_fini(&b->server);
}

void both_close(struct both *b)
{
    both_fini(b);
    test_tls_close(&b->tls);
}

bool both_has_amount(void *ctx)
{
    const struct both_amount *a = ctx;
    if (a->owner->is_failed)
        fail_msg("%s", a->owner->err.msg);
    return buf_len(&a->owner->got) >= a->n;
}

void both_expect(struct test_rig *r, struct test_owner *o, const char *text)
{
    test_until(r, both_has_amount, &(struct both_amount){o, strlen(text)});
    assert_true(str_eqc(buf_str(&o->got), text));
}
