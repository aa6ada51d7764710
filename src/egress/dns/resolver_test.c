/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "egress/dns/resolver.h"
#include "egress/dns/test_authority.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static usec_t fake_now;

static usec_t now(void)
{
    return fake_now;
}

struct box {
    uv_loop_t loop;
    struct authority authority;
    struct resolver *r;
    uv_timer_t guard;
    unsigned open;
};

struct result {
    struct box *box;
    unsigned calls;
    int status;
    unsigned ttl_s;
    char text[2048]; /* addresses and chain */
    struct resolver_lookup *lookup;
};

static void on_guard(uv_timer_t *timer)
{
    (void)timer;
    fail_msg("nothing comes any more");
}

static struct {
    uint16_t all[256];
    size_t n;
} ports; /* that questions came from */

static void note_port(const struct authority *a)
{
    const struct sockaddr_in *from = (const struct sockaddr_in *)(const void *)a->to;
    for (size_t i = 0; i < ports.n; i++)
        if (ports.all[i] == from->sin_port)
            return;
    if (ports.n < ARRAY_SIZE(ports.all))
        ports.all[ports.n++] = from->sin_port;
}

/* The zone of these tests; what a name says is what it is. */
static void zone(struct authority *a, const struct dns_query *q, bool udp)
{
    struct str name = str_of(q->name);
    bool v4 = q->type == DNS_A;
    if (udp)
        note_port(a);
    unsigned rcode = str_starts(name, STR("nx")) ? 3 : str_starts(name, STR("fail")) ? 2 : 0;
    if (str_starts(name, STR("silent")) || (str_starts(name, STR("once")) && a->asked == 1))
        return;
    struct dns_query lie = *q;
    if (str_starts(name, STR("wrongid")))
        lie.id ^= 1;
    if (str_starts(name, STR("wrongname")))
        lie.question = STR("\7someone\4else\0\0\1\0\1");
    if (lie.id != q->id || lie.question.p != q->question.p) { /* a forger is faster */
        authority_begin(a, &lie, 0);
        authority_add(a, "", DNS_A, 60, "203.0.113.66");
        authority_say(a);
    }
    authority_begin(a, q, rcode);
    if (str_starts(name, STR("huge"))) {
        if (udp)
            buf_data(&a->reply)[2] |= 2; /* ask over TCP */
        for (int i = 0; i < 3000 && !udp; i++)
            authority_add(a, "", DNS_A, 60, "192.0.2.9");
    } else if (str_starts(name, STR("chain"))) {
        authority_add(a, "", DNS_CNAME, 7, "Middle.test");
        authority_add(a, "middle.test", DNS_CNAME, 60, "end.test");
        authority_add(a, "end.test", q->type, 60, v4 ? "192.0.2.3" : "2001:db8::3");
    } else if (str_starts(name, STR("strangers"))) {
        authority_add(a, "other.test", q->type, 60, v4 ? "192.0.2.3" : "2001:db8::3");
    } else if (str_starts(name, STR("circle"))) {
        authority_add(a, "", DNS_CNAME, 7, q->name);
    } else if (str_starts(name, STR("rebind"))) {
        authority_add(a, "", DNS_A, 0, a->asked == 1 ? "198.51.100.10" : "127.0.0.1");
    } else if (str_starts(name, STR("mapped"))) {
        authority_add(a, "", DNS_AAAA, 60, "::ffff:10.0.0.1");
    } else if (str_starts(name, STR("v4only")) || rcode) {
        if (v4 && !rcode)
            authority_add(a, "", DNS_A, 3600, "192.0.2.4");
    } else {
        authority_add(a, "", q->type, 30, v4 ? "192.0.2.1" : "2001:db8::1");
        authority_add(a, "", q->type, 40, v4 ? "192.0.2.2" : "2001:db8::2");
    }
    authority_say(a);
}

static int start(void **state)
{
    struct box *b = mem_new(struct box);
    struct err err;
    fake_now = 1000 * USEC_PER_SEC;
    assert_int_equal(uv_loop_init(&b->loop), 0);
    authority_start(&b->authority, &b->loop, zone);
    assert_int_equal(resolver_new(&b->loop, b->authority.address, &b->r, &err), 0);
    resolver_set_clock(b->r, now);
    assert_int_equal(uv_timer_init(&b->loop, &b->guard), 0);
    assert_int_equal(uv_timer_start(&b->guard, on_guard, 30000, 0), 0);
    *state = b;
    return 0;
}

static int stop(void **state)
{
    struct box *b = *state;
    resolver_free(b->r);
    authority_stop(&b->authority);
    uv_close((uv_handle_t *)&b->guard, NULL);
    (void)uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&b->loop), 0);
    mem_free(b);
    return 0;
}

static void on_answer(void *ctx, const struct resolver_answer *answer)
{
    struct result *result = ctx;
    AUTO_BUF struct buf text = BUF_INIT(sizeof(result->text) - 1);
    for (size_t i = 0; i < answer->n_addrs; i++) {
        char one[NETADDR_TEXT_MAX];
        netaddr_print(&answer->addrs[i], one);
        buf_printf(&text, "%s ", one);
    }
    for (size_t i = 0; i < answer->n_chain; i++)
        buf_printf(&text, "<%s ", answer->chain[i]);
    assert_int_equal(buf_error(&text), 0);
    memcpy(result->text, buf_len(&text) ? buf_data(&text) : "", buf_len(&text));
    result->text[buf_len(&text)] = '\0';
    result->status = answer->status;
    result->ttl_s = answer->ttl_s;
    result->calls++;
    result->box->open--;
    resolver_cancel(result->lookup); /* too late, and harmless */
}

static void ask(struct box *b, const char *name, int family, struct result *result)
{
    *result = (struct result){.box = b};
    b->open++;
    result->lookup = resolver_resolve(b->r, name, family, on_answer, result);
    assert_int_equal(result->calls, 0);
}

static void finish(struct box *b)
{
    while (b->open)
        (void)uv_run(&b->loop, UV_RUN_ONCE);
}

static void one(struct box *b, const char *name, int family, struct result *result)
{
    ask(b, name, family, result);
    finish(b);
    assert_int_equal(result->calls, 1);
}

static void test_addresses(void **state)
{
    struct box *b = *state;
    struct result r;
    one(b, "www.test", 4, &r);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.text, "192.0.2.1 192.0.2.2 ");
    assert_int_equal(r.ttl_s, 30);
    one(b, "www.test", 6, &r);
    assert_string_equal(r.text, "2001:db8::1 2001:db8::2 ");
    one(b, "chain.test", 6, &r);
    assert_string_equal(r.text, "2001:db8::3 <middle.test <end.test ");
    assert_int_equal(r.ttl_s, 7);
    one(b, "v4only.test", 4, &r);
    assert_int_equal(r.ttl_s, RESOLVER_TTL_MAX_S);
    one(b, "mapped.test", 6, &r);
    assert_string_equal(r.text, "10.0.0.1 ");
}

static void test_noes(void **state)
{
    struct box *b = *state;
    struct result r;
    one(b, "v4only.test", 6, &r);
    assert_int_equal(r.status, -ENODATA);
    one(b, "nx.test", 4, &r);
    assert_int_equal(r.status, -ENOENT);
    one(b, "nx.test", 4, &r);
    assert_int_equal(r.status, -ENOENT);
    assert_int_equal(b->authority.asked, 2); /* a no is kept */
    fake_now += RESOLVER_NEGATIVE_S * USEC_PER_SEC;
    one(b, "nx.test", 4, &r);
    assert_int_equal(b->authority.asked, 3); /* not for long */
    one(b, "fail.test", 4, &r);
    assert_true(r.status == -ECONNREFUSED || r.status == -EPROTO);
    unsigned asked = b->authority.asked;
    one(b, "fail.test", 4, &r);
    assert_true(b->authority.asked > asked); /* a failure is not */
    one(b, "strangers.test", 4, &r);
    assert_int_equal(r.status, -ENODATA);
    one(b, "circle.test", 4, &r);
    assert_int_equal(r.status, -EPROTO);
}

static void test_cache(void **state)
{
    struct box *b = *state;
    struct result r;
    one(b, "www.test", 4, &r);
    fake_now += 29 * USEC_PER_SEC;
    one(b, "www.test", 4, &r);
    assert_int_equal(r.ttl_s, 1);
    assert_string_equal(r.text, "192.0.2.1 192.0.2.2 ");
    assert_int_equal(b->authority.asked, 1);
    fake_now += USEC_PER_SEC;
    one(b, "www.test", 4, &r);
    assert_int_equal(r.ttl_s, 30);
    assert_int_equal(b->authority.asked, 2);
}

/* Whoever owns the name says something else each time: what we said stands for a while, and then all see the new
 * one. */
static void test_rebinding(void **state)
{
    struct box *b = *state;
    struct result r;
    one(b, "rebind.test", 4, &r);
    assert_string_equal(r.text, "198.51.100.10 ");
    assert_int_equal(r.ttl_s, RESOLVER_TTL_MIN_S);
    fake_now += RESOLVER_TTL_MIN_S * USEC_PER_SEC - 1;
    one(b, "rebind.test", 4, &r);
    assert_string_equal(r.text, "198.51.100.10 ");
    fake_now += 1;
    one(b, "rebind.test", 4, &r);
    assert_string_equal(r.text, "127.0.0.1 ");
}

static void test_never_asked(void **state)
{
    struct box *b = *state;
    static const char *const names[] = {"localhost", "x.localhost", "",        "Upper.test", "a..test",
                                        "a.test.",   "a b.test",    "1.2.3.4", "10.1"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct result r;
        one(b, names[i], 4, &r);
        assert_int_equal(r.status, -EPERM);
    }
    assert_int_equal(b->authority.asked, 0);
    struct result r;
    one(b, "notlocalhost", 4, &r);
    assert_int_equal(r.status, 0);
}

static void test_together(void **state)
{
    struct box *b = *state;
    struct result r[10], other;
    for (size_t i = 0; i < ARRAY_SIZE(r); i++)
        ask(b, "www.test", 4, &r[i]);
    ask(b, "www.test", 6, &other);
    resolver_cancel(r[3].lookup);
    b->open--;
    finish(b);
    for (size_t i = 0; i < ARRAY_SIZE(r); i++)
        assert_int_equal(r[i].calls, i != 3);
    assert_int_equal(b->authority.asked, 2);
    ask(b, "www.test", 4, &r[0]); /* cancelled when its answer is on the way */
    resolver_cancel(r[0].lookup);
    b->open--;
    ask(b, "nobody-waits.test", 4, &r[1]);
    resolver_cancel(r[1].lookup);
    b->open--;
    one(b, "other.test", 4, &other);
    assert_int_equal(r[0].calls + r[1].calls, 0);
}

static void test_lies(void **state)
{
    struct box *b = *state;
    struct result r;
    one(b, "wrongid.test", 4, &r);
    assert_string_equal(r.text, "192.0.2.1 192.0.2.2 ");
    one(b, "wrongname.test", 4, &r);
    assert_string_equal(r.text, "192.0.2.1 192.0.2.2 ");
    one(b, "huge.test", 4, &r);
    assert_int_equal(r.status, 0);
    assert_int_equal(strlen(r.text), DNS_ADDRS_MAX * strlen("192.0.2.9 "));
}

static void test_silence(void **state)
{
    struct box *b = *state;
    struct result r, again;
    ask(b, "silent.test", 4, &r);
    fake_now += RESOLVER_WAIT_MS * USEC_PER_MS - 1;
    ask(b, "silent.test", 4, &again);
    fake_now += 1;
    while (!r.calls)
        (void)uv_run(&b->loop, UV_RUN_ONCE);
    assert_int_equal(r.status, -ETIMEDOUT);
    assert_int_equal(again.calls, 0); /* has its own time, though not its own question */
    assert_int_equal(b->authority.asked, 1);
    fake_now += RESOLVER_WAIT_MS * USEC_PER_MS;
    finish(b);
    assert_int_equal(again.status, -ETIMEDOUT);
    struct resolver_stats stats;
    resolver_stats(b->r, &stats);
    assert_int_equal(stats.asked, 1);
}

/* Whoever forges answers must guess where a question came from: while one that nobody answers keeps a socket open,
 * too. */
static void test_ports_change(void **state)
{
    enum { N = 64, A_PORT = 8 };
    struct box *b = *state;
    struct result silent, r;
    char name[64];
    ports.n = 0;
    ask(b, "silent.test", 4, &silent);
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof(name), "n%d.test", i);
        ask(b, name, 4, &r);
        while (!r.calls)
            (void)uv_run(&b->loop, UV_RUN_ONCE);
        assert_int_equal(r.status, 0);
    }
    assert_true(ports.n > N / A_PORT);
    fake_now += RESOLVER_WAIT_MS * USEC_PER_MS;
    finish(b);
    assert_int_equal(silent.status, -ETIMEDOUT);
}

/* A packet that was lost is sent again, in real time. */
static void test_again(void **state)
{
    struct box *b = *state;
    struct result r;
    one(b, "once.test", 4, &r);
    assert_int_equal(r.status, 0);
    assert_int_equal(b->authority.asked, 2);
}

static void test_bounds(void **state)
{
    struct box *b = *state;
    enum { ASKED = RESOLVER_OPEN_MAX + 2 };
    AUTO_FREE struct result *r = mem_array(ASKED, sizeof(*r));
    struct resolver_stats stats;
    char name[64];
    for (size_t i = 0; i < ASKED; i++) {
        (void)snprintf(name, sizeof(name), "silent-%zu.test", i);
        ask(b, name, 4, &r[i]);
    }
    while (!r[RESOLVER_OPEN_MAX + 1].calls)
        (void)uv_run(&b->loop, UV_RUN_ONCE);
    assert_int_equal(r[RESOLVER_OPEN_MAX].status, -EAGAIN);
    assert_int_equal(r[RESOLVER_OPEN_MAX + 1].status, -EAGAIN);
    assert_int_equal(r[0].calls + r[RESOLVER_OPEN_MAX - 1].calls, 0);
    resolver_stats(b->r, &stats);
    assert_int_equal(stats.open, RESOLVER_OPEN_MAX);
    fake_now += RESOLVER_WAIT_MS * USEC_PER_MS;
    finish(b);
}

static void test_cache_is_bounded(void **state)
{
    struct box *b = *state;
    struct result r = {.box = b};
    struct resolver_stats stats;
    char name[64];
    for (int i = 0; i < RESOLVER_CACHE_MAX + 50; i++) {
        (void)snprintf(name, sizeof(name), "n%d.test", i);
        one(b, name, 4, &r);
        assert_int_equal(r.status, 0);
        if (i == RESOLVER_CACHE_MAX / 2)
            one(b, "n0.test", 4, &r); /* was used lately */
    }
    resolver_stats(b->r, &stats);
    assert_int_equal(stats.cached, RESOLVER_CACHE_MAX);
    unsigned asked = b->authority.asked;
    one(b, "n0.test", 4, &r);
    assert_int_equal(b->authority.asked, asked);
    one(b, "n1.test", 4, &r);
    assert_int_equal(b->authority.asked, asked + 1);
}

static void test_bad_servers(void **state)
{
    struct box *b = *state;
    struct resolver *r = NULL;
    struct err err;
    assert_int_equal(resolver_new(&b->loop, "not an address", &r, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(resolver_new(&b->loop, "", &r, &err), -1);
    assert_null(r);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, start, stop)

int main(void)
{
    const struct CMUnitTest all[] = {
        TEST(test_addresses),    TEST(test_noes),     TEST(test_cache),  TEST(test_rebinding),
        TEST(test_never_asked),  TEST(test_together), TEST(test_lies),   TEST(test_silence),
        TEST(test_ports_change), TEST(test_again),    TEST(test_bounds), TEST(test_cache_is_bounded),
        TEST(test_bad_servers),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
