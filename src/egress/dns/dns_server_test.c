/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"
#include "egress/dns/dns_server.h"
#include "egress/dns/dns_server_internal.h"
#include "egress/dns/test_authority.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { RULE_EXACT = 0, RULE_WILD = 1, TXT = 16 };

static usec_t fake_now;

static usec_t now(void)
{
    return fake_now;
}

struct box {
    uv_loop_t loop;
    struct authority authority;
    struct resolver *resolver;
    struct dns_server *server;
    uint16_t port;
    unsigned n_refused, n_resolved;
    char refused[400]; /* the last: "name type rule reason" */
    struct buf resolved, failed;
};

static bool may(void *ctx, const char *name, struct policy_answer *ret_answer)
{
    (void)ctx;
    bool wild = str_ends(str_of(name), STR(".allowed.test")), free = str_ends(str_of(name), STR(".free.test"));
    bool exact = !strcmp(name, "exact.test") || str_starts(str_of(name), STR("silent-"));
    *ret_answer = (struct policy_answer){
        .verdict = wild || free || exact ? POLICY_ALLOW : POLICY_DENY,
        .rule = wild    ? RULE_WILD
                : exact ? RULE_EXACT
                        : POLICY_RULE_DEFAULT,
        .reason = "no rule allows it",
    };
    return ret_answer->verdict == POLICY_ALLOW;
}

/* Only public addresses may be reached. */
static size_t resolved(void *ctx, const char *name, struct netaddr *addrs, size_t n, unsigned ttl_s)
{
    struct box *b = ctx;
    size_t kept = 0;
    assert_in_range(ttl_s, 1, RESOLVER_TTL_MAX_S);
    for (size_t i = 0; i < n; i++)
        if (addrs[i].family == 6 || (addrs[i].bytes[0] != 127 && addrs[i].bytes[0] != 10))
            addrs[kept++] = addrs[i];
    buf_printf(&b->resolved, "%s %zu/%zu;", name, kept, n);
    b->n_resolved++;
    return kept;
}

static void refused(void *ctx, const char *name, const char *type, const struct policy_answer *why)
{
    struct box *b = ctx;
    assert_int_equal(why->verdict, POLICY_DENY);
    b->n_refused++;
    (void)snprintf(b->refused, sizeof(b->refused), "%.200s %s %d %s", name, type, why->rule, why->reason);
}

static void failed(void *ctx, const char *name, const char *why)
{
    struct box *b = ctx;
    buf_printf(&b->failed, "%s: %s;", name, why);
}

static const struct dns_server_ops ops = {may, resolved, refused, failed};

static void zone(struct authority *a, const struct dns_query *q, bool udp)
{
    (void)udp;
    struct str name = str_of(q->name);
    bool v4 = q->type == DNS_A;
    if (str_starts(name, STR("silent")))
        return;
    if (str_starts(name, STR("half"))) { /* an answer that breaks off */
        authority_begin(a, q, 0);
        buf_data(&a->reply)[7] = 9;
        authority_say(a);
        return;
    }
    authority_begin(a, q, str_starts(name, STR("nx")) ? 3 : str_starts(name, STR("fail")) ? 2 : 0);
    if (str_starts(name, STR("chain"))) {
        authority_add(a, "", DNS_CNAME, 7, "x.denied.test");
        authority_add(a, "x.denied.test", q->type, 60, v4 ? "192.0.2.3" : "2001:db8::3");
        authority_add(a, "unasked.test", q->type, 60, v4 ? "192.0.2.66" : "2001:db8::66");
    } else if (str_starts(name, STR("inside"))) {
        authority_add(a, "", q->type, 60, v4 ? "127.0.0.1" : "::ffff:127.0.0.1");
        authority_add(a, "", q->type, 60, v4 ? "10.0.0.1" : "::ffff:10.0.0.1");
    } else if (str_starts(name, STR("mixed"))) {
        authority_add(a, "", q->type, 60, v4 ? "127.0.0.1" : "::ffff:127.0.0.1");
        authority_add(a, "", q->type, 60, v4 ? "192.0.2.5" : "2001:db8::5");
    } else if (str_starts(name, STR("mapped"))) {
        authority_add(a, "", q->type, 60, v4 ? "192.0.2.6" : "::ffff:192.0.2.6");
    } else if (str_starts(name, STR("many"))) {
        for (int i = 0; i < 40; i++)
            authority_add(a, "", q->type, 60, v4 ? "192.0.2.7" : "2001:db8::7");
    } else if (!str_starts(name, STR("nx")) && !str_starts(name, STR("fail"))) {
        authority_add(a, "", q->type, 60, v4 ? "192.0.2.1" : "2001:db8::1");
    }
    authority_say(a);
}

static int listening(int type, uint16_t *port)
{
    int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0), off = 0;
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_port = htons(*port)};
    socklen_t n = sizeof(sa);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)), 0);
    if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || (type == SOCK_STREAM && listen(fd, 64) < 0)) {
        close(fd);
        return -1;
    }
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    *port = ntohs(sa.sin6_port);
    return fd;
}

static int start(void **state)
{
    struct box *b = mem_new(struct box);
    struct err err;
    int udp = -1, tcp = -1;
    fake_now = 1000 * USEC_PER_SEC;
    buf_init(&b->resolved, 65536);
    buf_init(&b->failed, 65536);
    assert_int_equal(uv_loop_init(&b->loop), 0);
    authority_start(&b->authority, &b->loop, zone);
    assert_int_equal(resolver_new(&b->loop, b->authority.address, &b->resolver, &err), 0);
    resolver_set_clock(b->resolver, now);
    while (tcp < 0) {
        if (udp >= 0)
            close(udp);
        b->port = 0;
        udp = listening(SOCK_DGRAM, &b->port);
        assert_true(udp >= 0);
        tcp = listening(SOCK_STREAM, &b->port);
    }
    assert_int_equal(dns_server_new(&b->loop, b->resolver, udp, tcp, &ops, b, &b->server), 0);
    dns_server_set_clock(b->server, now);
    alarm(50);
    *state = b;
    return 0;
}

static int stop(void **state)
{
    struct box *b = *state;
    dns_server_free(b->server);
    resolver_free(b->resolver);
    authority_stop(&b->authority);
    (void)uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&b->loop), 0);
    buf_fini(&b->resolved);
    buf_fini(&b->failed);
    mem_free(b);
    alarm(0);
    return 0;
}

/* A client's socket, connected: answers from other addresses than the asked one don't arrive. */
static int dial(struct box *b, int type, const char *address)
{
    struct netaddr a;
    struct sockaddr_storage sa;
    assert_true(netaddr_parse(str_of(address), &a));
    socklen_t n = (socklen_t)netaddr_to_sockaddr(&a, b->port, &sa);
    int fd = socket(sa.ss_family, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, n), 0);
    return fd;
}

static void turn(struct box *b)
{
    (void)uv_run(&b->loop, UV_RUN_NOWAIT);
}

/* What comes to fd: -1 when it was closed. Never waits longer than alarm() allows. */
static ssize_t await(struct box *b, int fd, void *to, size_t room)
{
    for (;;) {
        turn(b);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 1) <= 0)
            continue;
        ssize_t n = recv(fd, to, room, MSG_DONTWAIT);
        return n > 0 ? n : -1;
    }
}

static void make_query(struct buf *to, uint16_t id, const char *name, uint16_t type, bool edns)
{
    struct str rest = str_of(name), label;
    const char header[12] = {(char)(id >> 8), (char)id, 1, 0, 0, 1, [11] = edns};
    buf_append(to, header, sizeof(header));
    while (name[0] && str_split(&rest, '.', &label)) {
        buf_append_char(to, (char)label.n);
        buf_append_str(to, label);
    }
    const char tail[5] = {0, (char)(type >> 8), (char)type, 0, 1};
    buf_append(to, tail, sizeof(tail));
    if (edns)
        buf_append_str(to, STR("\0\0\x29\x04\xd0\0\0\0\0\0\0"));
    assert_int_equal(buf_error(to), 0);
}

struct answer {
    uint8_t bytes[4096];
    size_t n;
    unsigned id, rcode, n_records;
    bool cut;
    struct dns_reply reply; /* when rcode is 0 and it is about addresses */
    char first[NETADDR_TEXT_MAX];
};

static void read_answer(struct answer *a, const char *name, uint16_t type)
{
    char lower[256];
    assert_true(a->n >= 12 && strlen(name) < sizeof(lower) && (a->bytes[2] & 0x80));
    for (size_t i = 0; i <= strlen(name); i++)
        lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
    a->id = (unsigned)(a->bytes[0] << 8 | a->bytes[1]);
    a->rcode = a->bytes[3] & 15;
    a->cut = a->bytes[2] & 2;
    a->n_records = (unsigned)(a->bytes[6] << 8 | a->bytes[7]);
    a->first[0] = '\0';
    assert_int_equal(a->bytes[8] | a->bytes[9], 0);
    if (a->rcode || a->cut || (type != DNS_A && type != DNS_AAAA))
        return;
    assert_int_equal(dns_reply_parse(str_n(a->bytes, a->n), lower, type, &a->reply), 0);
    assert_int_equal(a->reply.n_addrs, a->n_records);
    if (a->n_records)
        netaddr_print(&a->reply.addrs[0], a->first);
}

static void ask(struct box *b, const char *name, uint16_t type, struct answer *a)
{
    AUTO_BUF struct buf q = BUF_INIT(2048);
    int fd = dial(b, SOCK_DGRAM, "127.0.0.1");
    make_query(&q, 77, name, type, true);
    assert_int_equal(send(fd, buf_data(&q), buf_len(&q), 0), buf_len(&q));
    ssize_t n = await(b, fd, a->bytes, sizeof(a->bytes));
    assert_true(n > 0);
    close(fd);
    a->n = (size_t)n;
    read_answer(a, name, type);
    assert_int_equal(a->id, 77);
}

static void test_answers(void **state)
{
    struct box *b = *state;
    struct answer a;
    ask(b, "exact.test", DNS_A, &a);
    assert_int_equal(a.rcode, 0);
    assert_string_equal(a.first, "192.0.2.1");
    assert_int_equal(a.reply.ttl_s, DNS_SERVER_TTL_S);
    ask(b, "eXaCt.TEST", DNS_AAAA, &a);
    assert_string_equal(a.first, "2001:db8::1");
    assert_memory_equal(a.bytes + 12, "\5eXaCt\4TEST", 12);
    ask(b, "nx.allowed.test", DNS_A, &a);
    assert_int_equal(a.rcode, DNS_NXDOMAIN);
    ask(b, "fail.allowed.test", DNS_A, &a);
    assert_int_equal(a.rcode, DNS_SERVFAIL);
    ask(b, "half.allowed.test", DNS_A, &a);
    assert_int_equal(a.rcode, DNS_SERVFAIL);
    assert_int_equal(b->n_refused, 0);
    assert_true(str_eqc(buf_str(&b->failed),
                        "nx.allowed.test: there is no such name;fail.allowed.test: the host's DNS servers fail;"
                        "half.allowed.test: the host's DNS servers fail;"));
    assert_true(str_starts(buf_str(&b->resolved), STR("exact.test 1/1;exact.test 1/1;")));
}

/* musl takes the second answer, all others the first. */
static void test_refusals_are_said_twice_without_edns(void **state)
{
    struct box *b = *state;
    for (int edns = 0; edns < 2; edns++) {
        AUTO_BUF struct buf q = BUF_INIT(2048);
        struct answer a;
        int fd = dial(b, SOCK_DGRAM, "127.0.0.1");
        make_query(&q, 78, "secret123.denied.test", DNS_A, edns);
        assert_int_equal(send(fd, buf_data(&q), buf_len(&q), 0), buf_len(&q));
        ssize_t n = await(b, fd, a.bytes, sizeof(a.bytes));
        assert_true(n > 12 && (a.bytes[3] & 15) == DNS_REFUSED);
        n = recv(fd, a.bytes, sizeof(a.bytes), MSG_DONTWAIT); /* both were sent in one turn */
        assert_int_equal(n > 12 && a.bytes[1] == 78 && (a.bytes[3] & 15) == DNS_NXDOMAIN, !edns);
        close(fd);
    }
    assert_int_equal(b->n_refused, 2);
}

static void test_refusals(void **state)
{
    struct box *b = *state;
    struct answer a;
    ask(b, "secret123.denied.test", DNS_A, &a);
    assert_int_equal(a.rcode, DNS_REFUSED);
    assert_string_equal(b->refused, "secret123.denied.test A -1 no rule allows it");
    assert_non_null(memmem(a.bytes, a.n, "no rule allows it", 17)); /* the extended error */
    static const uint16_t types[] = {TXT, 10, 15, 33, 255, 5, 6, 2, 12, 252, 4711};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        unsigned before = b->n_refused;
        ask(b, "exact.test", types[i], &a);
        assert_int_equal(a.rcode, DNS_REFUSED);
        assert_int_equal(a.n_records, 0);
        assert_int_equal(b->n_refused, before + 1);
    }
    assert_string_equal(b->refused, "exact.test TYPE4711 -2 DNS here has addresses only, no TYPE4711");
    static const char *const no_names[] = {"", "a b.allowed.test", "1.2.3.4", "allowed.test.1", "-.allowed.test"};
    for (size_t i = 0; i < ARRAY_SIZE(no_names); i++) {
        ask(b, no_names[i], DNS_A, &a);
        assert_int_equal(a.rcode, DNS_REFUSED);
    }
    assert_int_equal(b->authority.asked, 0);
}

static void test_answered_here(void **state)
{
    struct box *b = *state;
    struct answer a;
    ask(b, "localhost", DNS_A, &a);
    assert_string_equal(a.first, "127.0.0.1");
    ask(b, "db.LocalHost", DNS_AAAA, &a);
    assert_string_equal(a.first, "::1");
    ask(b, "localhost", TXT, &a);
    assert_int_equal(a.rcode + a.n_records, 0);
    ask(b, "1.0.0.127.in-addr.arpa", DNS_PTR, &a);
    assert_int_equal(a.rcode, DNS_NXDOMAIN);
    ask(b, "8.8.8.8.in-addr.arpa", DNS_PTR, &a);
    assert_int_equal(a.rcode, DNS_NXDOMAIN);
    ask(b, "1.0.0.0.ip6.arpa", DNS_PTR, &a);
    assert_int_equal(a.rcode, DNS_NXDOMAIN);
    ask(b, "exact.test", DNS_HTTPS, &a);
    assert_int_equal(a.rcode + a.n_records, 0);
    ask(b, "_dns.resolver.arpa", DNS_SVCB, &a);
    assert_int_equal(a.rcode + a.n_records, 0);
    assert_int_equal(b->authority.asked + b->n_refused, 0);
    ask(b, "notlocalhost", DNS_A, &a);
    assert_int_equal(a.rcode, DNS_REFUSED);
}

static void test_filtered(void **state)
{
    struct box *b = *state;
    struct answer a;
    for (uint16_t type = DNS_A; type <= DNS_AAAA; type += DNS_AAAA - DNS_A) {
        ask(b, "inside.allowed.test", type, &a);
        assert_int_equal(a.rcode + a.n_records, 0);
        ask(b, "mixed.allowed.test", type, &a);
        assert_int_equal(a.n_records, 1);
        assert_string_equal(a.first, type == DNS_A ? "192.0.2.5" : "2001:db8::5");
    }
    ask(b, "mapped.allowed.test", DNS_AAAA, &a); /* an IPv4 address is no answer to a question for IPv6 */
    assert_int_equal(a.rcode + a.n_records, 0);
    ask(b, "chain.allowed.test", DNS_A, &a); /* flattened: records of the asked name, nobody else's */
    assert_int_equal(a.n_records, 1);
    assert_int_equal(a.reply.n_chain, 0);
    assert_string_equal(a.first, "192.0.2.3");
    assert_null(memmem(a.bytes, a.n, "denied", 6));
}

/* Any address is answered from that address. */
static void test_asked_address(void **state)
{
    struct box *b = *state;
    static const char *const servers[] = {"127.0.0.1", "127.0.0.2", "127.8.8.8", "::1"};
    for (size_t i = 0; i < ARRAY_SIZE(servers); i++) {
        for (int type = SOCK_DGRAM; type >= SOCK_STREAM; type--) {
            AUTO_BUF struct buf q = BUF_INIT(2048);
            struct answer a;
            if (type == SOCK_STREAM)
                buf_append(&q, "\0\x1c", 2);
            make_query(&q, 5, "exact.test", DNS_A, false);
            int fd = dial(b, type, servers[i]);
            assert_int_equal(send(fd, buf_data(&q), buf_len(&q), 0), buf_len(&q));
            ssize_t n = await(b, fd, a.bytes, sizeof(a.bytes));
            assert_int_equal(n, buf_len(&q) + 16);
            close(fd);
        }
    }
}

static void test_truncation(void **state)
{
    struct box *b = *state;
    AUTO_BUF struct buf q = BUF_INIT(2048);
    struct answer a;
    int fd = dial(b, SOCK_DGRAM, "127.0.0.1");
    make_query(&q, 5, "many.allowed.test", DNS_AAAA, false);
    assert_true(send(fd, buf_data(&q), buf_len(&q), 0) > 0);
    a.n = (size_t)await(b, fd, a.bytes, sizeof(a.bytes));
    assert_true(a.n <= 512);
    read_answer(&a, "many.allowed.test", DNS_AAAA);
    assert_true(a.cut);
    close(fd);
    ask(b, "many.allowed.test", DNS_AAAA, &a);
    assert_false(a.cut);
    assert_int_equal(a.n_records, DNS_ADDRS_MAX);
}

static void test_nonsense(void **state)
{
    struct box *b = *state;
    AUTO_BUF struct buf q = BUF_INIT(8192);
    struct answer a;
    int fd = dial(b, SOCK_DGRAM, "127.0.0.1");
    static const struct str silent[] = {{"", 0}, {"x", 1}, {"\0\1\x81\0\0\1\0\0\0\0\0\0\0\0\1\0\1", 17}};
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        assert_int_equal(send(fd, silent[i].p, silent[i].n, 0), silent[i].n);
    make_query(&q, 6, "exact.test", DNS_A, false);
    memset(buf_reserve(&q, 3000), 0, 3000);
    buf_commit(&q, 3000);
    assert_true(send(fd, buf_data(&q), buf_len(&q), 0) > 0);
    a.n = (size_t)await(b, fd, a.bytes, sizeof(a.bytes));
    read_answer(&a, "exact.test", DNS_A);
    assert_int_equal(a.rcode, DNS_FORMERR);
    assert_int_equal(a.id, 6);
    close(fd);
}

static void test_rate(void **state)
{
    struct box *b = *state;
    struct answer a;
    for (int i = 0; i < DNS_SERVER_BURST; i++) {
        ask(b, "exact.test", DNS_A, &a);
        assert_int_equal(a.rcode, 0);
        if (i % 50 == 0)
            fake_now += USEC_PER_MS; /* a tenth of one more */
    }
    for (int i = 0; i < 10; i++) {
        ask(b, "exact.test", DNS_A, &a);
        assert_int_equal(a.rcode, DNS_REFUSED);
    }
    assert_int_equal(b->n_refused, 1);
    assert_string_equal(b->refused, "exact.test A -2 more than 100 DNS queries a second");
    fake_now += USEC_PER_SEC / DNS_SERVER_RATE;
    ask(b, "exact.test", DNS_A, &a);
    assert_int_equal(a.rcode, 0);
    ask(b, "exact.test", DNS_A, &a);
    assert_int_equal(a.rcode, DNS_REFUSED);
    assert_int_equal(b->n_refused, 1); /* it is not over yet */
    fake_now += 2 * USEC_PER_SEC;
    for (int i = 0; i <= DNS_SERVER_BURST; i++)
        ask(b, "exact.test", DNS_A, &a);
    assert_int_equal(a.rcode, DNS_REFUSED);
    assert_int_equal(b->n_refused, 2);
}

/* A flood: not even read beyond the read rate, and over when it is over. */
static void test_flood(void **state)
{
    struct box *b = *state;
    AUTO_BUF struct buf q = BUF_INIT(2048);
    struct answer a;
    make_query(&q, 9, "x.denied.test", DNS_A, true);
    int fd = dial(b, SOCK_DGRAM, "127.0.0.1"), answers = 0;
    for (int i = 0; i < 3000; i++) {
        (void)send(fd, buf_data(&q), buf_len(&q), MSG_DONTWAIT);
        if (i % 16 == 0)
            turn(b);
        while (recv(fd, a.bytes, sizeof(a.bytes), MSG_DONTWAIT) > 0)
            answers++;
    }
    assert_true(b->server->paused);
    assert_in_range(answers, DNS_SERVER_READ_RATE / 10 - 64, DNS_SERVER_READ_RATE / 10 + 64);
    assert_in_range(b->n_refused, 1, DNS_SERVER_BURST + 1);
    close(fd);
    for (int i = 0; i < 40; i++) { /* the backlog is worked off, bit by bit */
        fake_now += USEC_PER_SEC;
        for (int k = 0; k < 12; k++) {
            turn(b);
            (void)poll(NULL, 0, b->server->paused ? 10 : 0);
        }
    }
    ask(b, "exact.test", DNS_A, &a);
    assert_int_equal(a.rcode, 0);
    assert_int_equal(b->authority.asked, 1);
}

static void test_many_names(void **state)
{
    struct box *b = *state;
    struct answer a;
    char name[64];
    for (int i = 0; i <= DNS_SERVER_NAMES_MAX; i++) {
        fake_now += 20 * USEC_PER_MS;
        (void)snprintf(name, sizeof(name), "d%d.allowed.test", i);
        ask(b, name, i % 2 ? DNS_A : DNS_AAAA, &a);
        assert_int_equal(a.rcode, i < DNS_SERVER_NAMES_MAX ? 0 : DNS_REFUSED);
    }
    assert_false(authority_saw(&b->authority, "d300.allowed.test/AAAA"));
    ask(b, "more.allowed.test", DNS_A, &a);
    assert_int_equal(a.rcode, DNS_REFUSED);
    assert_int_equal(b->n_refused, 1);
    assert_string_equal(b->refused, "d300.allowed.test AAAA -2 more than 300 different names a minute below rule 1");
    ask(b, "d7.allowed.test", DNS_A, &a); /* known ones go on, and those of other rules */
    assert_int_equal(a.rcode, 0);
    ask(b, "exact.test", DNS_A, &a);
    assert_int_equal(a.rcode, 0);
    struct policy_answer why = {.reason = ""};
    assert_false(dns_server_may_ask(b->server, 1, "hello.allowed.test", &why)); /* without a query */
    assert_string_equal(why.reason, "more than 300 different names a minute below rule 1");
    assert_true(dns_server_may_ask(b->server, 1, "d7.allowed.test", &why));
    assert_true(dns_server_may_ask(b->server, POLICY_RULE_DEFAULT, "hello.allowed.test", &why));
    fake_now += 60 * USEC_PER_SEC;
    ask(b, "more.allowed.test", DNS_A, &a);
    assert_int_equal(a.rcode, 0);
    for (int i = 0; i < DNS_SERVER_NAMES_MAX + 50; i++) { /* allowed because nothing forbids it */
        fake_now += 20 * USEC_PER_MS;
        (void)snprintf(name, sizeof(name), "f%d.free.test", i);
        ask(b, name, DNS_A, &a);
        assert_int_equal(a.rcode, 0);
    }
}

static void test_open(void **state)
{
    struct box *b = *state;
    AUTO_BUF struct buf q = BUF_INIT(2048);
    struct answer a;
    char name[64];
    int fd = dial(b, SOCK_DGRAM, "127.0.0.1");
    for (int i = 0; i < DNS_SERVER_OPEN_MAX + 3; i++) {
        (void)snprintf(name, sizeof(name), "silent-%d", i);
        buf_clear(&q);
        make_query(&q, (uint16_t)i, name, DNS_A, false);
        assert_true(send(fd, buf_data(&q), buf_len(&q), 0) > 0);
        if (i >= DNS_SERVER_OPEN_MAX) {
            a.n = (size_t)await(b, fd, a.bytes, sizeof(a.bytes));
            read_answer(&a, name, DNS_A);
            assert_int_equal(a.id, i);
            assert_int_equal(a.rcode, DNS_REFUSED);
        }
    }
    assert_int_equal(b->n_refused, 1);
    fake_now += RESOLVER_WAIT_MS * USEC_PER_MS;
    for (int i = 0; i < DNS_SERVER_OPEN_MAX; i++) {
        a.n = (size_t)await(b, fd, a.bytes, sizeof(a.bytes));
        read_answer(&a, "", 0);
        assert_int_equal(a.rcode, DNS_SERVFAIL);
    }
    assert_int_equal(b->server->n_asks, 0);
    close(fd);
}

static void nobody(void *ctx, const struct resolver_answer *answer)
{
    (void)ctx, (void)answer;
}

/* While many wait for what nobody answers, each gets less, and all get some. */
static void test_open_for_all(void **state)
{
    enum { OTHERS = 600, ROOM = (RESOLVER_OPEN_MAX - OTHERS) / 9 };
    struct box *b = *state;
    AUTO_BUF struct buf q = BUF_INIT(2048);
    struct resolver_lookup *others[OTHERS];
    struct answer a;
    char name[64];
    int fd = dial(b, SOCK_DGRAM, "127.0.0.1");
    for (int i = 0; i < OTHERS; i++) {
        (void)snprintf(name, sizeof(name), "silent-other-%d.test", i);
        others[i] = resolver_resolve(b->resolver, name, 4, nobody, NULL);
    }
    for (int i = 0; i <= ROOM; i++) {
        (void)snprintf(name, sizeof(name), "silent-%d", i);
        buf_clear(&q);
        make_query(&q, (uint16_t)i, name, DNS_A, false);
        assert_true(send(fd, buf_data(&q), buf_len(&q), 0) > 0);
    }
    a.n = (size_t)await(b, fd, a.bytes, sizeof(a.bytes));
    read_answer(&a, name, DNS_A);
    assert_int_equal(a.id, ROOM);
    assert_int_equal(a.rcode, DNS_REFUSED);
    assert_int_equal(b->server->n_asks, ROOM);
    for (int i = 0; i < OTHERS; i++)
        resolver_cancel(others[i]);
    close(fd);
}

static void put_frame(struct buf *to, uint16_t id, const char *name, uint16_t type)
{
    AUTO_BUF struct buf q = BUF_INIT(2048);
    make_query(&q, id, name, type, false);
    buf_append_char(to, (char)(buf_len(&q) >> 8));
    buf_append_char(to, (char)buf_len(&q));
    buf_append_str(to, buf_str(&q));
}

/* One whole answer from the stream. */
static bool next_answer(struct box *b, int fd, struct buf *in, struct answer *a)
{
    struct str message;
    while (dns_frame_get(buf_str(in), &message) != 1) {
        ssize_t n = await(b, fd, buf_reserve(in, 4096), 4096);
        if (n < 0)
            return false;
        buf_commit(in, (size_t)n);
    }
    memcpy(a->bytes, message.p, message.n);
    a->n = message.n;
    buf_consume(in, 2 + message.n);
    read_answer(a, "", 0);
    return true;
}

static void test_tcp(void **state)
{
    struct box *b = *state;
    AUTO_BUF struct buf out = BUF_INIT(65536), in = BUF_INIT(65536);
    struct answer a;
    int fd = dial(b, SOCK_STREAM, "127.0.0.1");
    put_frame(&out, 1, "exact.test", DNS_A);
    for (size_t i = 0; i < buf_len(&out); i++) { /* byte by byte */
        assert_int_equal(send(fd, buf_data(&out) + i, 1, 0), 1);
        turn(b);
    }
    assert_true(next_answer(b, fd, &in, &a));
    assert_int_equal(a.id, 1);
    assert_int_equal(a.n_records, 1);
    buf_clear(&out);
    for (uint16_t i = 0; i < 150; i++) /* all at once; the slow ones hold nobody up */
        put_frame(&out, i, i % 50 == 7 ? "silent-one" : i % 2 ? "many.allowed.test" : "x.denied.test", DNS_AAAA);
    assert_int_equal(send(fd, buf_data(&out), buf_len(&out), 0), buf_len(&out));
    assert_int_equal(shutdown(fd, SHUT_WR), 0); /* and that was all: they are answered nevertheless */
    bool seen[150] = {false};
    for (int i = 0; i < 150; i++) {
        if (i == 147)
            fake_now += RESOLVER_WAIT_MS * USEC_PER_MS;
        assert_true(next_answer(b, fd, &in, &a));
        assert_true(a.id < 150 && !seen[a.id]);
        seen[a.id] = true;
        assert_int_equal(a.rcode, a.id % 50 == 7 ? DNS_SERVFAIL : a.id % 2 ? 0 : DNS_REFUSED);
        assert_int_equal(a.n_records, a.id % 2 && a.id % 50 != 7 ? DNS_ADDRS_MAX : 0);
    }
    assert_false(next_answer(b, fd, &in, &a));
    assert_int_equal(b->server->n_conns, 0);
    close(fd);
}

static void test_tcp_bounds(void **state)
{
    struct box *b = *state;
    int fds[DNS_SERVER_TCP_MAX + 1];
    char byte;
    for (int i = 0; i <= DNS_SERVER_TCP_MAX; i++) {
        fds[i] = dial(b, SOCK_STREAM, i % 2 ? "127.0.0.1" : "::1");
        turn(b);
    }
    assert_int_equal(await(b, fds[DNS_SERVER_TCP_MAX], &byte, 1), -1); /* one too many */
    assert_int_equal(b->server->n_conns, DNS_SERVER_TCP_MAX);
    assert_int_equal(send(fds[0], "\xff\xff", 2, 0), 2); /* 64 KiB are no query */
    assert_int_equal(await(b, fds[0], &byte, 1), -1);
    assert_int_equal(send(fds[1], "\0\x1c", 2, 0), 2);
    turn(b);
    fake_now += DNS_SERVER_TCP_IDLE_MS * USEC_PER_MS - 1;
    assert_int_equal(send(fds[1], "x", 1, 0), 1); /* a byte keeps nothing open */
    turn(b);
    assert_int_equal(b->server->n_conns, DNS_SERVER_TCP_MAX - 1);
    fake_now += 1;
    for (int i = 1; i < DNS_SERVER_TCP_MAX; i++)
        assert_int_equal(await(b, fds[i], &byte, 1), -1);
    assert_int_equal(b->server->n_conns, 0);
    for (int i = 0; i <= DNS_SERVER_TCP_MAX; i++)
        close(fds[i]);
}

/* Somebody who asks and never reads: what is kept for him is bounded, and ends. */
static void test_tcp_deaf(void **state)
{
    struct box *b = *state;
    AUTO_BUF struct buf out = BUF_INIT(1 << 20);
    struct answer a;
    int fd = dial(b, SOCK_STREAM, "127.0.0.1"), small = 4096;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    for (uint16_t i = 0; i < 500; i++)
        put_frame(&out, i, "many.allowed.test", DNS_AAAA);
    size_t sent = 0;
    for (int i = 0; i < 3000; i++) {
        ssize_t n = send(fd, buf_data(&out) + sent % buf_len(&out), buf_len(&out) - sent % buf_len(&out),
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        fake_now += 10 * USEC_PER_MS; /* so that the rate is no reason */
        turn(b);
    }
    assert_int_equal(b->server->n_conns, 1);
    while (b->server->n_conns) {
        fake_now += DNS_SERVER_TCP_IDLE_MS * USEC_PER_MS / 100;
        turn(b);
        (void)poll(NULL, 0, 1);
    }
    close(fd);
    ask(b, "exact.test", DNS_A, &a);
    assert_int_equal(a.rcode, 0);
}

/* With queries on the way over both, the server ends: nothing is called any more (see stop()). */
static void test_end(void **state)
{
    struct box *b = *state;
    AUTO_BUF struct buf out = BUF_INIT(65536);
    int udp = dial(b, SOCK_DGRAM, "127.0.0.1"), tcp = dial(b, SOCK_STREAM, "127.0.0.1");
    put_frame(&out, 1, "silent-a", DNS_A);
    put_frame(&out, 2, "exact.test", DNS_A);
    assert_true(send(tcp, buf_data(&out), buf_len(&out), 0) > 0);
    assert_true(send(udp, buf_data(&out) + 2, buf_len(&out) / 2, 0) > 0);
    while (b->server->n_asks < 2)
        turn(b);
    close(udp);
    close(tcp);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, start, stop)

int main(void)
{
    const struct CMUnitTest all[] = {
        TEST(test_answers),
        TEST(test_refusals),
        TEST(test_answered_here),
        TEST(test_filtered),
        TEST(test_asked_address),
        TEST(test_truncation),
        TEST(test_nonsense),
        TEST(test_rate),
        TEST(test_flood),
        TEST(test_many_names),
        TEST(test_open),
        TEST(test_open_for_all),
        TEST(test_tcp),
        TEST(test_tcp_bounds),
        TEST(test_tcp_deaf),
        TEST(test_end),
        TEST(test_refusals_are_said_twice_without_edns),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
