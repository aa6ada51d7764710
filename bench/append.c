/* SPDX-License-Identifier: Apache-2.0 */
/*
 * append PATH EVENTS BATCH RULES: appends that many events of the size of an exec.start, committing every BATCH of them
 * as the loop does once a turn, and prints microseconds per batch, one a line. With RULES, each is judged by so many
 * rules of the guard before, and by all rails. Linked with the service's own libraries.
 */
#include "base/clock.h"
#include "event/log.h"
#include "guard/rules.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Every second one is about a program that runs, every fourth about its words, every fourth about paths; none fits.
 * NULL: no rules. */
static struct rules *rules_for(unsigned long n, struct err *err)
{
    struct rules *rules = NULL;
    json_t *all = json_array(), *names = json_array();
    for (unsigned long i = 0; i < n; i++)
        (void)json_array_append_new(
            all, i % 4 == 0 ? json_pack("{s:[s,s],s:s}", "argv", "make", "--nothing", "verdict", "deny")
                 : i % 4 == 1
                     ? json_pack("{s:[s,s],s:s}", "path", "~/.secret/*", "*.pem", "verdict", "ask")
                     : json_pack("{s:[[s,s],s],s:s}", "argv", "program", "other*", "--force", "verdict", "deny"));
    for (size_t i = 0; rails[i].name; i++)
        (void)json_array_append_new(names, json_string(rails[i].name));
    json_t *json = json_pack("{s:o,s:o}", "rules", all, "rails", names);
    if (n && rules_parse(json, &rules, err) < 0)
        rules = NULL;
    json_decref(json);
    return rules;
}

static void judge(const struct rules *rules, const struct event_draft *draft)
{
    static const struct str argv[] = {STR("/bin/bash"), STR("-l"), STR("-c"), STR("make -j2 && make check")};
    struct rules_action a = {.kind = draft->kind, .actor = draft->actor, .id = STR("i"), .argv = argv, .n_argv = 4};
    struct rules_answer answer;
    if (!rules)
        return;
    rules_judge(rules, &a, &answer);
    rules_action_fini(&a);
    if (answer.verdict != GUARD_ALLOW)
        exit(3);
}

static int measure(const char *path, unsigned long events, unsigned long batch, unsigned long n_rules, struct err *err)
{
    AUTO(rules_free) struct rules *rules = rules_for(n_rules, err);
    AUTO(store_close) struct store *store = NULL;
    AUTO(event_log_close) struct event_log *log = NULL;
    const struct event_draft draft = {
        .sandbox = "ibenchbenchbenchbench",
        .kind = EVENT_EXEC_START,
        .source = EVENT_CLIENT,
        .grade = EVENT_OBSERVED_HOST,
        .actor = STR("e2b"),
        .data = STR(
            "{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"make -j2 && make check\"],\"user\":\"user\",\"deadline\":1795298477000000}"),
    };
    if ((n_rules && !rules) || store_open(path, &store, err) < 0 || event_log_open(store, &log, err) < 0)
        return -1;
    for (unsigned long at = 0; at < events; at += batch) {
        double start = now_us();
        for (unsigned long i = 0; i < batch; i++) {
            judge(rules, &draft);
            if (event_append(log, &draft, NULL, err) < 0)
                return -1;
        }
        if (store_commit(store, err) < 0)
            return -1;
        printf("%.2f\n", now_us() - start);
        if (store_wal_pages(store) > 4000 && store_checkpoint(store, err) < 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct err err;
    if (argc != 5)
        return 2;
    if (measure(argv[1], strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10), &err) <
        0) {
        (void)fprintf(stderr, "append: %s\n", err.msg);
        return 1;
    }
    return 0;
}
