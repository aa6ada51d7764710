/* SPDX-License-Identifier: Apache-2.0 */
/* The language of rules: what fits, which of several counts, and what is said of mistakes. */
#include "base/buf.h"
#include "guard/rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct rules *rules_of(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    struct rules *rules = NULL;
    struct err err;
    assert_non_null(json);
    if (rules_parse(json, &rules, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(json);
    return rules;
}

/* An answer as "verdict rule risk". */
static void judged(const char *rules_text, enum event_kind kind, const char *actor, const char *data,
                   const char *expected)
{
    AUTO(rules_free) struct rules *rules = rules_of(rules_text);
    struct rules_action a = {.kind = kind, .actor = str_of(actor), .id = STR("i1"), .data = str_of(data)};
    struct rules_answer answer;
    char text[200];
    rules_judge(rules, &a, &answer);
    (void)snprintf(text, sizeof(text), "%s %s %s", guard_verdict_name(answer.verdict), answer.rule,
                   guard_risk_name(answer.risk));
    assert_string_equal(text, expected);
    rules_action_fini(&a);
}

#define PUSH "{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"git push --force\"]}"

static void the_first_rule_that_fits_decides(void **state)
{
    (void)state;
    judged("{}", EVENT_EXEC_START, "e2b:1", PUSH, "allow otherwise low");
    judged("{\"otherwise\":\"deny\"}", EVENT_FILE_READ, "e2b:1", "{}", "deny otherwise low");
    judged("{\"rules\":[{\"name\":\"a\",\"argv\":[\"git\",[\"push\",\"fetch\"]],\"verdict\":\"ask\"},"
           "{\"argv\":[\"git\"],\"verdict\":\"deny\"}]}",
           EVENT_EXEC_START, "e2b:1", PUSH, "ask a low");
    judged("{\"rules\":[{\"argv\":[\"git\",\"pull\"],\"verdict\":\"ask\"},{\"argv\":[\"git\"],\"verdict\":\"deny\"}]}",
           EVENT_EXEC_START, "e2b:1", PUSH, "deny rules[1] low");
    judged("{\"rules\":[{\"kind\":\"exec.*\",\"actor\":\"cli:*\",\"verdict\":\"deny\"}]}", EVENT_EXEC_START, "e2b:1",
           PUSH, "allow otherwise low");
    judged("{\"rules\":[{\"kind\":\"*\",\"sandbox\":\"i2\",\"verdict\":\"deny\"}]}", EVENT_EXEC_START, "", PUSH,
           "allow otherwise low");
    judged("{\"rules\":[{\"kind\":\"*\",\"sandbox\":\"i1\",\"verdict\":\"deny\"}]}", EVENT_SANDBOX_KILL, "", "{}",
           "deny rules[0] low");
}

static void rails_count_behind_rules_and_the_strictest_wins(void **state)
{
    (void)state;
    judged("{\"rails\":[\"force-push\"]}", EVENT_EXEC_START, "", PUSH, "ask rail force-push medium");
    judged("{\"rails\":{\"force-push\":\"deny\"}}", EVENT_EXEC_START, "", PUSH, "deny rail force-push medium");
    judged("{\"rails\":{\"force-push\":\"allow\"},\"by_risk\":{\"medium\":\"ask\"}}", EVENT_EXEC_START, "", PUSH,
           "ask risk medium medium");
    judged("{\"rails\":{\"force-push\":\"deny\"},\"rules\":[{\"argv\":[\"git\",\"push\"],\"verdict\":\"allow\"}]}",
           EVENT_EXEC_START, "", PUSH, "allow rules[0] low");
    judged("{\"rules\":[{\"argv\":[\"git\"],\"risk\":\"high\"}],\"by_risk\":{\"high\":\"deny\"}}", EVENT_EXEC_START, "",
           PUSH, "deny risk high high");
    judged("{\"by_risk\":{\"unknown\":\"ask\"}}", EVENT_EXEC_START, "", "{\"cmd\":\"sh\",\"args\":[\"-c\",\"$x\"]}",
           "ask risk unknown unknown");
    judged("{\"by_risk\":{\"unknown\":\"ask\"}}", EVENT_EXEC_START, "",
           "{\"cmd\":\"ls\",\"args\":[],\"args_cut\":true}", "ask risk unknown unknown");
    judged("{\"by_risk\":{\"unknown\":\"ask\"}}", EVENT_EXEC_START, "", "{\"cmd\":\"ls\",\"args\":[]}",
           "allow otherwise low");
}

static void each_matcher_fits_what_it_names(void **state)
{
    static const struct {
        const char *matcher;
        enum event_kind kind;
        const char *data;
        bool fits;
    } cases[] = {
        {"\"path\":\"/etc/*\"", EVENT_FILE_WRITE, "{\"path\":\"/etc/hosts\"}", true},
        {"\"path\":\"/etc/*\"", EVENT_FILE_WRITE, "{\"path\":\"/tmp/../etc//./hosts\"}", true},
        {"\"path\":\"/etc/*\"", EVENT_FILE_MOVE, "{\"path\":\"/tmp/a\",\"destination\":\"/etc/hosts\"}", true},
        {"\"path\":\"/etc/*\"", EVENT_FILE_WRITE, "{\"path\":\"/home/etc/x\"}", false},
        {"\"path\":\"~/.ssh/*\"", EVENT_FILE_READ, "{\"path\":\".ssh/id\"}", true},
        {"\"path\":\"~/.ssh/*\"", EVENT_FILE_READ, "{\"path\":\"/home/user/.ssh\"}", true},
        {"\"path\":\"~/.ssh/*\"", EVENT_FILE_READ, "{\"path\":\"/srv/.ssh/id\"}", false},
        {"\"path\":\"*.pem\",\"access\":\"write\"", EVENT_FILE_READ, "{\"path\":\"/a/b.pem\"}", false},
        {"\"path\":\"*.pem\",\"access\":\"write\"", EVENT_FILE_REMOVE, "{\"path\":\"/a/b.pem\"}", true},
        {"\"path\":\"*.pem\",\"access\":\"write\"", EVENT_EXEC_START,
         "{\"cmd\":\"sh\",\"args\":[\"-c\",\"echo x > k.pem\"]}", true},
        {"\"path\":\"*.pem\",\"access\":\"write\"", EVENT_EXEC_START, "{\"cmd\":\"cp\",\"args\":[\"k.pem\",\"x\"]}",
         false},
        {"\"host\":\"*.evil.test\"", EVENT_EXEC_START, "{\"cmd\":\"curl\",\"args\":[\"https://u:p@A.Evil.test:8/x\"]}",
         true},
        {"\"host\":\"*.evil.test\"", EVENT_EXEC_START, "{\"cmd\":\"git\",\"args\":[\"clone\",\"git@x.evil.test:r\"]}",
         true},
        {"\"host\":\"*.evil.test\"", EVENT_EXEC_START, "{\"cmd\":\"curl\",\"args\":[\"https://good.test/.evil.test\"]}",
         false},
        {"\"host\":\"a.test\"", EVENT_NET_POLICY, "{\"rules\":[{\"allow\":\"a.test\"}]}", true},
        {"\"host\":\"a.test\"", EVENT_NET_POLICY, "{\"rules\":[{\"deny\":\"a.test\"}]}", false},
        {"\"host\":\"a.test\"", EVENT_NET_POLICY, "{\"n_rules\":900,\"truncated\":true}", true},
        {"\"path\":\"/etc/*\"", EVENT_FILE_READ, "{\"path\":\"/tmp/a\",\"path_bytes\":4000}", true},
        {"\"path\":\"/etc/*\"", EVENT_FILE_MOVE, "{\"path\":\"/a\",\"destination\":\"/\",\"destination_bytes\":4000}",
         true},
        {"\"path\":\"/etc/*\",\"access\":\"write\"", EVENT_FILE_READ, "{\"path\":\"/tmp/a\",\"path_bytes\":4000}",
         false},
        {"\"path\":\"/etc/*\"", EVENT_FILE_READ, "{\"path\":\"/etc/a\\u0000\"}", true},
        {"\"port\":22", EVENT_DIAL, "{\"port\":22}", true},
        {"\"port\":22", EVENT_DIAL, "{\"port\":2222}", false},
        {"\"kind\":\"exec.input\",\"min_bytes\":10", EVENT_EXEC_INPUT, "{\"bytes\":10}", true},
        {"\"kind\":\"exec.input\",\"min_bytes\":10", EVENT_EXEC_INPUT, "{\"bytes\":9}", false},
        {"\"kind\":\"exec.start\",\"min_bytes\":6", EVENT_EXEC_START, "{\"cmd\":\"abc\",\"args\":[\"def\"]}", true},
        {"\"command\":[\"git\",\"push\"]", EVENT_EXEC_START, "{\"cmd\":\"git\",\"args\":[\"push\"]}", true},
        {"\"command\":[\"git\",\"push\"]", EVENT_EXEC_START, "{\"cmd\":\"git\",\"args\":[\"push\",\"-f\"]}", false},
        {"\"unreadable\":true", EVENT_EXEC_START, "{\"cmd\":\"python3\",\"args\":[\"-c\",\"1\"]}", true},
        {"\"argv\":[\"curl\"],\"feeds\":\"sh\"", EVENT_EXEC_START, "{\"cmd\":\"sh\",\"args\":[\"-c\",\"curl x | sh\"]}",
         true},
        {"\"argv\":[\"curl\"],\"feeds\":\"sh\"", EVENT_EXEC_START,
         "{\"cmd\":\"sh\",\"args\":[\"-c\",\"curl x; sh y\"]}", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[300];
        (void)snprintf(text, sizeof(text), "{\"rules\":[{%s,\"verdict\":\"deny\"}]}", cases[i].matcher);
        AUTO(rules_free) struct rules *rules = rules_of(text);
        struct rules_action a = {.kind = cases[i].kind, .data = str_of(cases[i].data)};
        struct rules_answer answer;
        rules_judge(rules, &a, &answer);
        rules_action_fini(&a);
        if ((answer.verdict == GUARD_DENY) != cases[i].fits)
            fail_msg("%s: %s", cases[i].matcher, cases[i].data);
    }
}

static void mistakes_are_named(void **state)
{
    static const char *const cases[][2] = {
        {"[]", "write a mapping"},
        {"{\"rule\":[]}", "rule: no such member"},
        {"{\"rules\":{}}", "rules: write a list"},
        {"{\"rules\":[1]}", "rules[0]: write a mapping"},
        {"{\"rules\":[{\"kind\":\"exec.run\",\"verdict\":\"deny\"}]}", "rules[0].kind: there is no action 'exec.run'"},
        {"{\"rules\":[{\"kind\":\"exec.exit\",\"verdict\":\"deny\"}]}",
         "rules[0].kind: there is no action 'exec.exit'"},
        {"{\"rules\":[{\"verdict\":\"deny\"}]}", "rules[0]: it doesn't say what it is about"},
        {"{\"rules\":[{\"kind\":\"*\"}]}", "rules[0]: write a verdict"},
        {"{\"rules\":[{\"kind\":\"*\",\"verdict\":\"no\"}]}", "rules[0].verdict: write allow, ask or deny"},
        {"{\"rules\":[{\"argv\":\"git push\",\"verdict\":\"ask\"}]}", "rules[0].argv: write a list: the program"},
        {"{\"rules\":[{\"argv\":[\"git\",[]],\"verdict\":\"ask\"}]}", "rules[0].argv: write a text, or a list"},
        {"{\"rules\":[{\"feeds\":\"sh\",\"verdict\":\"ask\"}]}", "rules[0]: feeds and runs_output say more"},
        {"{\"rules\":[{\"kind\":\"*\",\"colour\":1,\"verdict\":\"ask\"}]}",
         "rules[0].colour: no such member; there are name, kind, actor, sandbox, argv, command, feeds, path, access, "
         "host, port, min_bytes, runs_output, unreadable, verdict, risk and reason"},
        {"{\"rails\":[\"nothing\"]}", "rails: there is no rail 'nothing'"},
        {"{\"rails\":{\"force-push\":\"perhaps\"}}", "rails.force-push: write allow, ask or deny"},
        {"{\"by_risk\":{\"huge\":\"ask\"}}", "by_risk: write low, unknown, medium or high"},
        {"{\"stuck\":\"panic\"}", "stuck: write notify, off, pause or kill"},
        {"{\"analyser\":{\"url\":\"ftp://x\"}}", "analyser.url: write http://"},
        {"{\"analyser\":{}}", "analyser.url: write where it listens"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *json = json_loads(cases[i][0], 0, NULL);
        struct rules *rules;
        struct err err;
        assert_int_equal(rules_parse(json, &rules, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
        if (strncmp(err.msg, cases[i][1], strlen(cases[i][1])) != 0)
            fail_msg("%s: %s", cases[i][0], err.msg);
        json_decref(json);
    }
}

static void patterns_are_globs(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool fits;
    } cases[] = {
        {"a*c", "abbc", true},     {"a*c", "abcd", false}, {"*", "", true},          {"?", "", false},
        {"a?c", "abc", true},      {"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false}, {"[*]", "*", true},
        {"[*]", "a", false},       {"\\*", "*", true},     {"[", "[", true},         {"a**b", "ab", true},
        {"*a*b*", "xaxxbx", true}, {"[]]", "]", true},     {"\\", "\\", true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (rules_glob(str_of(cases[i].pattern), str_of(cases[i].text)) != cases[i].fits)
            fail_msg("%s: %s", cases[i].pattern, cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_rule_that_fits_decides),
        cmocka_unit_test(rails_count_behind_rules_and_the_strictest_wins),
        cmocka_unit_test(each_matcher_fits_what_it_names),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(patterns_are_globs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
