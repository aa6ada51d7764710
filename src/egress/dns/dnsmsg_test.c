/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "egress/dns/dnsmsg.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HEADER(flags, qd, an, ns, ar) "\x12\x34" flags "\0" qd "\0" an "\0" ns "\0" ar
#define ONE_QUESTION HEADER("\x01\0", "\1", "\0", "\0", "\0")
#define WITH_OPT HEADER("\x01\0", "\1", "\0", "\0", "\1")
#define EXAMPLE "\7eXample\3oRg\0"
#define IN_A "\0\x01\0\x01"
#define IN_AAAA "\0\x1c\0\x01"

static int parse(struct str bytes, struct dns_query *q)
{
    AUTO_BUF struct buf exact = BUF_INIT(70000); /* so that reading behind the end is seen */
    buf_append_str(&exact, bytes);
    int r = dns_query_parse(buf_str(&exact), q);
    if (q->question.n)
        q->question.p = bytes.p + (q->question.p - buf_data(&exact));
    return r;
}

#define IS(bytes, result)                                                                                              \
    do {                                                                                                               \
        q = (struct dns_query){.id = 0};                                                                               \
        assert_int_equal(parse(STR(bytes), &q), result);                                                               \
    } while (0)

static void test_queries(void **state)
{
    (void)state;
    struct dns_query q;
    IS(ONE_QUESTION EXAMPLE IN_A, 0);
    assert_int_equal(q.id, 0x1234);
    assert_int_equal(q.type, DNS_A);
    assert_int_equal(q.class, 1);
    assert_string_equal(q.name, "eXample.oRg");
    assert_true(q.wants_recursion && !q.checking_disabled && !q.has_edns);
    assert_int_equal(q.udp_room, 512);
    assert_true(str_eq(q.question, STR(EXAMPLE IN_A)));
    IS(ONE_QUESTION "\0\0\x02\0\x01", 0); /* the root */
    assert_string_equal(q.name, "");
    IS(ONE_QUESTION "\4a.b\0\3c\\\x7f\0\0\x10\0\x03", 0);
    assert_string_equal(q.name, "a\\046b\\000.c\\092\\127");
    assert_int_equal(q.type, 16);
    assert_int_equal(q.class, 3);

    IS(WITH_OPT EXAMPLE IN_AAAA "\0\0\x29\x04\xd0\0\0\x80\0\0\0", 0);
    assert_true(q.has_edns);
    assert_int_equal(q.udp_room, 1232);
    assert_int_equal(q.type, DNS_AAAA);
    IS(WITH_OPT EXAMPLE IN_A "\0\0\x29\0\x0a\0\0\0\0\0\x0c\0\x0a\0\x08"
                             "cookie!!",
       0);
    assert_int_equal(q.udp_room, 512);
    IS(WITH_OPT EXAMPLE IN_A "\0\0\x29\x10\0\0\x01\0\0\0\0", DNS_BADVERS);
    assert_true(q.has_edns && q.question.n > 0);
}

static void test_what_is_no_query(void **state)
{
    (void)state;
    struct dns_query q;
    IS("", -EBADMSG);
    IS("\x12\x34\x01\0\0\x01\0\0\0\0\0", -EBADMSG);
    IS(HEADER("\x81\0", "\1", "\0", "\0", "\0") EXAMPLE IN_A, -EBADMSG);             /* an answer */
    IS(HEADER("\x28\0", "\1", "\0", "\0", "\0") EXAMPLE "\0\x06\0\x01", DNS_NOTIMP); /* update */
    assert_int_equal(q.question.n, 0);
    IS(HEADER("\x01\0", "\0", "\0", "\0", "\0"), DNS_FORMERR);
    assert_int_equal(q.id, 0x1234);
    IS(HEADER("\x01\0", "\2", "\0", "\0", "\0") EXAMPLE IN_A EXAMPLE IN_A, DNS_FORMERR);
    IS(HEADER("\x03\0", "\1", "\0", "\0", "\0") EXAMPLE IN_A, DNS_FORMERR);
    IS(HEADER("\x01\0", "\1", "\1", "\0", "\0") EXAMPLE IN_A EXAMPLE IN_A "\0\0\0\0\0\0", DNS_FORMERR);
    IS(ONE_QUESTION EXAMPLE "\0\x01\0", DNS_FORMERR);
    IS(ONE_QUESTION EXAMPLE IN_A "x", DNS_FORMERR);
    assert_int_equal(q.question.n, 0);
    IS(ONE_QUESTION "\7example\3org", DNS_FORMERR);
    IS(ONE_QUESTION "\xc0\x0c" IN_A, DNS_FORMERR);
    IS(ONE_QUESTION "\3www\xc0\x0c" IN_A, DNS_FORMERR);
    IS(ONE_QUESTION "\x40" EXAMPLE IN_A, DNS_FORMERR);
    IS(ONE_QUESTION "\x3f" EXAMPLE IN_A, DNS_FORMERR);
    IS(WITH_OPT EXAMPLE IN_A, DNS_FORMERR);
    IS(WITH_OPT EXAMPLE IN_A "\0\0\x29\x04\xd0\0\0\0\0\0\x01", DNS_FORMERR);
    IS(WITH_OPT EXAMPLE IN_A "\0\0\x29\x04\xd0\0\0\0\0\0\x04\0\x0a\0\x01", DNS_FORMERR);
    IS(WITH_OPT EXAMPLE IN_A "\1x\0\0\x29\x04\xd0\0\0\0\0\0\0", DNS_FORMERR);
    IS(WITH_OPT EXAMPLE IN_A "\0\0\x10\x04\xd0\0\0\0\0\0\0", DNS_FORMERR);
    IS(HEADER("\x01\0", "\1", "\0", "\0", "\2") EXAMPLE IN_A "\0\0\x29\x04\xd0\0\0\0\0\0\0"
                                                             "\0\0\x29\x04\xd0\0\0\0\0\0\0",
       DNS_FORMERR);
}

/* 255 bytes are a name, 256 are not, whatever is in them. */
static void test_longest_name(void **state)
{
    (void)state;
    for (size_t last = 60; last <= 63; last++) {
        AUTO_BUF struct buf b = BUF_INIT(4096);
        struct dns_query q;
        buf_append_str(&b, STR(ONE_QUESTION));
        for (size_t i = 0; i < 4; i++) {
            size_t n = i < 3 ? 63 : last;
            buf_append_char(&b, (char)n);
            memset(buf_reserve(&b, n), 0xff, n);
            buf_commit(&b, n);
        }
        buf_append_str(&b, STR("\0" IN_A));
        assert_int_equal(parse(buf_str(&b), &q), last <= 61 ? 0 : DNS_FORMERR);
        if (last <= 61)
            assert_int_equal(strlen(q.name), (3 * 63 + last) * 4 + 3);
    }
}

static struct netaddr addr(const char *text)
{
    struct netaddr a;
    assert_true(netaddr_parse(str_of(text), &a));
    return a;
}

static struct str format(const struct dns_query *q, const struct dns_answer *a, bool udp)
{
    static uint8_t bytes[DNS_MESSAGE_MAX];
    memset(bytes, 0xee, sizeof(bytes));
    size_t n = dns_answer_format(q, a, udp, bytes);
    assert_true(n <= (udp ? MIN(q->udp_room, DNS_UDP_MAX) : DNS_MESSAGE_MAX));
    return str_n(bytes, n);
}

#define ANSWERS(bytes, ...) assert_true(str_eq(format(&q, &(struct dns_answer){__VA_ARGS__}, true), STR(bytes)))

static void test_answers(void **state)
{
    (void)state;
    struct dns_query q;
    const struct netaddr addrs[] = {addr("192.0.2.1"), addr("2001:db8::7"), addr("192.0.2.2")};
    IS(ONE_QUESTION EXAMPLE IN_A, 0);
    ANSWERS(HEADER("\x81\x80", "\1", "\2", "\0", "\0") EXAMPLE IN_A "\xc0\x0c" IN_A "\0\0\0\x3c\0\x04\xc0\0\2\1"
                                                                    "\xc0\x0c" IN_A "\0\0\0\x3c\0\x04\xc0\0\2\2",
            .addrs = addrs, .n_addrs = 3, .ttl_s = 60);
    ANSWERS(HEADER("\x81\x80", "\1", "\0", "\0", "\0") EXAMPLE IN_A, .rcode = 0);
    ANSWERS(HEADER("\x81\x83", "\1", "\0", "\0", "\0") EXAMPLE IN_A, .rcode = DNS_NXDOMAIN, .addrs = addrs,
            .n_addrs = 3);
    ANSWERS(HEADER("\x81\x85", "\1", "\0", "\0", "\0") EXAMPLE IN_A, .rcode = DNS_REFUSED, .ede = DNS_EDE_BLOCKED,
            .text = "why");
    IS(WITH_OPT EXAMPLE IN_AAAA "\0\0\x29\x10\0\0\0\x80\0\0\0", 0);
    ANSWERS(HEADER("\x81\x80", "\1", "\1", "\0", "\1") EXAMPLE IN_AAAA
            "\xc0\x0c" IN_AAAA "\0\0\0\5\0\x10\x20\1\xd\xb8\0\0\0\0\0\0\0\0\0\0\0\7"
            "\0\0\x29\x04\xd0\0\0\0\0\0\0",
            .addrs = addrs, .n_addrs = 3, .ttl_s = 5);
    ANSWERS(HEADER("\x81\x85", "\1", "\0", "\0", "\1") EXAMPLE IN_AAAA
            "\0\0\x29\x04\xd0\0\0\0\0\0\x09\0\x0f\0\x05\0\x0fwhy",
            .rcode = DNS_REFUSED, .ede = DNS_EDE_BLOCKED, .text = "why");
    ANSWERS(HEADER("\x81\x80", "\1", "\0", "\0", "\1") EXAMPLE IN_AAAA "\0\0\x29\x04\xd0\1\0\0\0\0\0",
            .rcode = DNS_BADVERS);
    IS(HEADER("\x10\x10", "\1", "\0", "\0", "\0") EXAMPLE IN_A, DNS_NOTIMP);
    ANSWERS(HEADER("\x80\x94", "\0", "\0", "\0", "\0"), .rcode = DNS_NOTIMP);
    IS(ONE_QUESTION EXAMPLE "\0\x10\0\x01", 0); /* never an address where a text was asked for */
    ANSWERS(HEADER("\x81\x80", "\1", "\0", "\0", "\0") EXAMPLE "\0\x10\0\x01", .addrs = addrs, .n_addrs = 3);
}

/* What does not fit is left out, and TC is set; the reader of replies understands what is left. */
static void test_truncation(void **state)
{
    (void)state;
    struct netaddr many[DNS_ADDRS_MAX + 4];
    for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
        many[i] = addr("2001:db8::");
        many[i].bytes[15] = (uint8_t)i;
    }
    const struct dns_answer a = {.addrs = many, .n_addrs = ARRAY_SIZE(many), .ttl_s = 60};
    struct dns_query q;
    struct dns_reply reply;
    static const struct {
        const char *opt;
        bool udp;
        size_t wanted;
    } cases[] = {{"\0\x40", true, 16},
                 {"\x02\0", true, 16},
                 {"\x03\xff", true, 32},
                 {"\xff\xff", true, 32},
                 {"\0\0", false, 32}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf b = BUF_INIT(512);
        buf_append_str(&b, STR(WITH_OPT EXAMPLE IN_AAAA "\0\0\x29"));
        buf_append(&b, cases[i].opt, 2);
        buf_append_str(&b, STR("\0\0\0\0\0\0"));
        assert_int_equal(parse(buf_str(&b), &q), 0);
        struct str answer = format(&q, &a, cases[i].udp);
        bool cut = answer.p[2] & 2;
        assert_int_equal(cut, cases[i].wanted < 32);
        ((char *)answer.p)[2] &= (char)~2;
        assert_int_equal(dns_reply_parse(answer, "example.org", DNS_AAAA, &reply), 0);
        assert_int_equal(reply.n_addrs, MIN(cases[i].wanted, DNS_ADDRS_MAX));
        assert_int_equal(reply.ttl_s, 60);
    }
    IS(WITH_OPT EXAMPLE IN_A "\0\0\x29\0\0\0\0\0\0\0\0", 0);
    char text[DNS_EDE_TEXT_MAX + 10] = "";
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text + DNS_EDE_TEXT_MAX - 1, "\xc3\xa4", 2); /* a character over the edge goes as a whole */
    struct str answer = format(&q, &(struct dns_answer){.rcode = 5, .ede = DNS_EDE_BLOCKED, .text = text}, true);
    assert_int_equal(answer.p[answer.n - 1], 'x');
    assert_int_equal(answer.n, 12 + sizeof(EXAMPLE IN_A) - 1 + 11 + 6 + DNS_EDE_TEXT_MAX - 1);
}

static void test_frames(void **state)
{
    (void)state;
    struct str m;
    assert_int_equal(dns_frame_get(STR(""), &m), 0);
    assert_int_equal(dns_frame_get(STR("\0"), &m), 0);
    assert_int_equal(dns_frame_get(STR("\0\x0b"), &m), -EMSGSIZE);
    assert_int_equal(dns_frame_get(STR("\x08\x01"), &m), -EMSGSIZE);
    assert_int_equal(dns_frame_get(STR("\xff\xff"), &m), -EMSGSIZE);
    assert_int_equal(dns_frame_get(STR("\x08\0"), &m), 0);
    assert_int_equal(dns_frame_get(STR("\0\x0c"
                                       "12345678901"),
                                   &m),
                     0);
    assert_int_equal(dns_frame_get(STR("\0\x0c"
                                       "123456789012next"),
                                   &m),
                     1);
    assert_true(str_eq(m, STR("123456789012")));
}

#define REPLY(answers) HEADER("\x81\x80", "\1", answers, "\0", "\0") "\1a\4test\0"
#define OWN "\xc0\x0c"
#define TTL(n) "\0\0\0" n
#define A1 "\0\x04\xc0\0\2\1"
#define A2 "\0\x04\xc0\0\2\2"

static int reply(struct str bytes, uint16_t type, struct dns_reply *r)
{
    AUTO_BUF struct buf exact = BUF_INIT(70000);
    buf_append_str(&exact, bytes);
    memset(r, 0, sizeof(*r));
    return dns_reply_parse(buf_str(&exact), "a.test", type, r);
}

#define REPLIES(bytes, result) assert_int_equal(reply(STR(bytes), DNS_A, &r), result)

static void test_replies(void **state)
{
    (void)state;
    struct dns_reply r;
    REPLIES(REPLY("\2") IN_A OWN IN_A TTL("\x1e") A1 OWN IN_A TTL("\x14") A2, 0);
    assert_int_equal(r.n_addrs, 2);
    assert_true(netaddr_eq(&r.addrs[1], &(struct netaddr){4, {192, 0, 2, 2}}));
    assert_int_equal(r.ttl_s, 20);
    assert_int_equal(r.n_chain, 0);
    REPLIES(REPLY("\0") IN_A, 0);
    assert_int_equal(r.n_addrs + r.ttl_s, 0);
    REPLIES(REPLY("\1") IN_A OWN IN_A "\x80\0\0\1" A1, 0);
    assert_int_equal(r.ttl_s, 0);
    REPLIES(REPLY("\1") IN_A "\1A\4TEST\0" IN_A TTL("\x1e") A1, 0);
    assert_int_equal(r.n_addrs, 1);

    assert_int_equal(
        reply(STR(REPLY("\1") IN_AAAA OWN IN_AAAA TTL("\1") "\0\x10\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1"), DNS_AAAA,
              &r),
        0);
    assert_true(netaddr_eq(&r.addrs[0], &(struct netaddr){4, {127, 0, 0, 1}})); /* what it is, not how it is dressed */
    assert_int_equal(reply(STR(REPLY("\1") IN_AAAA OWN IN_A TTL("\1") A1), DNS_AAAA, &r), 0);
    assert_int_equal(r.n_addrs, 0);
}

/* Records of other names, classes and types are nobody's. */
static void test_strangers(void **state)
{
    (void)state;
    struct dns_reply r;
    REPLIES(REPLY("\1") IN_A "\1b\4test\0" IN_A TTL("\1") A1, 0);
    assert_int_equal(r.n_addrs, 0);
    REPLIES(REPLY("\1") IN_A "\4test\0" IN_A TTL("\1") A1, 0);
    assert_int_equal(r.n_addrs, 0);
    REPLIES(REPLY("\1") IN_A OWN "\0\1\0\3" TTL("\1") A1, 0);
    assert_int_equal(r.n_addrs, 0);
    REPLIES(REPLY("\1") IN_A OWN "\0\x10\0\1" TTL("\1") "\0\3\2hi", 0);
    assert_int_equal(r.n_addrs, 0);
    REPLIES(HEADER("\x81\x80", "\1", "\0", "\0", "\1") "\1a\4test\0" IN_A OWN IN_A TTL("\1") A1, 0); /* additional */
    assert_int_equal(r.n_addrs, 0);
}

#define CNAME_TO(size, target) "\0\5\0\1" TTL("\x0a") "\0" size target

static void test_chains(void **state)
{
    (void)state;
    struct dns_reply r;
    /* a -> b -> c, records in the wrong order */
    REPLIES(REPLY("\4") IN_A "\1c\4test\0" IN_A TTL("\x3c") A1 "\1b\xc0\x0e" CNAME_TO("\4", "\1c\xc0\x0e")
                OWN CNAME_TO("\x08", "\1B\4test\0") OWN IN_A TTL("\1") A2,
            0);
    assert_int_equal(r.n_chain, 2);
    assert_string_equal(r.chain[0], "b.test");
    assert_string_equal(r.chain[1], "c.test");
    assert_int_equal(r.n_addrs, 1);
    assert_int_equal(r.addrs[0].bytes[3], 1);
    assert_int_equal(r.ttl_s, 10);
    REPLIES(REPLY("\1") IN_A OWN CNAME_TO("\4", "\1b\xc0\x0e"), 0); /* leads nowhere */
    assert_int_equal(r.n_chain, 1);
    assert_int_equal(r.n_addrs, 0);
    REPLIES(REPLY("\1") IN_A OWN CNAME_TO("\2", OWN), -ELOOP);
    REPLIES(REPLY("\2") IN_A OWN CNAME_TO("\4", "\1b\xc0\x0e") "\1b\xc0\x0e" CNAME_TO("\2", OWN), -ELOOP);
    REPLIES(REPLY("\1") IN_A OWN CNAME_TO("\5", "\1b\xc0\x0e"
                                                "x"),
            -EBADMSG);
    REPLIES(REPLY("\1") IN_A OWN CNAME_TO("\1", "\0"), -EBADMSG);
    REPLIES(REPLY("\1") IN_A OWN CNAME_TO("\3", "\1 \0"), -EBADMSG);
    REPLIES(REPLY("\1") IN_A OWN CNAME_TO("\5", "\3127\0"), -EBADMSG); /* would be an address to some */

    AUTO_BUF struct buf b = BUF_INIT(65536);
    for (int n = DNS_CHAIN_MAX; n <= DNS_CHAIN_MAX + 1; n++) {
        buf_clear(&b);
        buf_append_str(&b, STR(HEADER("\x81\x80", "\1", "\0", "\0", "\0") "\1a\4test\0" IN_A));
        buf_data(&b)[7] = (char)n;
        for (char c = 'a'; c < 'a' + n; c++) {
            buf_append(&b, (char[]){1, c, (char)0xc0, 14}, 4);
            buf_append_str(&b, STR(CNAME_TO("\4", "")));
            buf_append(&b, (char[]){1, (char)(c + 1), (char)0xc0, 14}, 4);
        }
        assert_int_equal(reply(buf_str(&b), DNS_A, &r), n == DNS_CHAIN_MAX ? 0 : -ELOOP);
    }
}

static void test_lies(void **state)
{
    (void)state;
    struct dns_reply r;
    REPLIES("", -EBADMSG);
    REPLIES(HEADER("\x01\0", "\1", "\0", "\0", "\0") "\1a\4test\0" IN_A, -EBADMSG);   /* a query */
    REPLIES(HEADER("\x83\x80", "\1", "\0", "\0", "\0") "\1a\4test\0" IN_A, -EBADMSG); /* cut */
    REPLIES(HEADER("\x81\x83", "\1", "\0", "\0", "\0") "\1a\4test\0" IN_A, -EBADMSG); /* failed */
    REPLIES(HEADER("\x81\x80", "\0", "\0", "\0", "\0"), -EBADMSG);
    REPLIES(HEADER("\x81\x80", "\1", "\1", "\0", "\0") "\1b\4test\0" IN_A OWN IN_A TTL("\1") A1, -EBADMSG);
    REPLIES(REPLY("\1") IN_AAAA OWN IN_A TTL("\1") A1, -EBADMSG);
    REPLIES(REPLY("\1") IN_A, -EBADMSG); /* one is missing */
    REPLIES(REPLY("\1") IN_A OWN IN_A TTL("\1") "\0\5\xc0\0\2\1x", -EBADMSG);
    REPLIES(REPLY("\1") IN_A OWN IN_A TTL("\1") "\0\4\xc0\0\2", -EBADMSG);
    REPLIES(REPLY("\1") IN_A "\xc0\x18" IN_A TTL("\1") A1,
            -EBADMSG); /* compression to itself, ahead, and in a circle */
    REPLIES(REPLY("\1") IN_A "\xc0\xff" IN_A TTL("\1") A1, -EBADMSG);
    REPLIES(REPLY("\1") IN_A "\1x\xc0\x18" IN_A TTL("\1") A1, -EBADMSG);
    REPLIES(REPLY("\1") IN_A "\x80\x0c" IN_A TTL("\1") A1, -EBADMSG);

    /* Many records, all of them fine: the first RECORDS_MAX are looked at, the first DNS_ADDRS_MAX taken. */
    AUTO_BUF struct buf b = BUF_INIT(65536);
    buf_append_str(&b, STR(REPLY("\0") IN_A));
    char *bytes = buf_data(&b);
    bytes[6] = 1;
    for (int i = 0; i < 256; i++)
        buf_append_str(&b, STR(OWN IN_A TTL("\5") A1));
    assert_int_equal(reply(buf_str(&b), DNS_A, &r), 0);
    assert_int_equal(r.n_addrs, DNS_ADDRS_MAX);
}

static void test_type_names(void **state)
{
    (void)state;
    char text[12];
    assert_string_equal(dns_type_name(1, text), "A");
    assert_string_equal(dns_type_name(65, text), "HTTPS");
    assert_string_equal(dns_type_name(65535, text), "TYPE65535");
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_queries), cmocka_unit_test(test_what_is_no_query), cmocka_unit_test(test_longest_name),
        cmocka_unit_test(test_answers), cmocka_unit_test(test_truncation),       cmocka_unit_test(test_frames),
        cmocka_unit_test(test_replies), cmocka_unit_test(test_strangers),        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_lies),    cmocka_unit_test(test_type_names),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
