/* SPDX-License-Identifier: Apache-2.0 */
/* Rules, and behind a NUL a command that they judge. What was taken is taken again from its own JSON. */
#include "guard/rules.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text, rest = str_n(data, size);
    struct rules *rules, *again;
    struct rules_answer answer;
    struct err err;
    if (!str_split(&rest, '\0', &text))
        return 0;
    json_t *json = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    if (!json)
        return 0;
    int r = rules_parse(json, &rules, &err);
    json_decref(json);
    if (r < 0)
        return err.code == ERR_INVALID_ARGUMENT && err.msg[0] ? 0 : (abort(), 0);
    if (rules_parse(rules_json(rules), &again, &err) < 0)
        abort();
    const struct str argv[] = {STR("bash"), STR("-c"), rest};
    struct rules_action a = {.kind = EVENT_EXEC_START, .argv = argv, .n_argv = ARRAY_SIZE(argv)};
    rules_judge(rules, &a, &answer);
    rules_action_fini(&a);
    struct rules_action b = {.kind = EVENT_FILE_WRITE, .data = rest};
    rules_judge(again, &b, &answer);
    rules_action_fini(&b);
    rules_free(again);
    rules_free(rules);
    return 0;
}
