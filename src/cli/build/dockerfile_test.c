/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "cli/build/dockerfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* All steps as "TYPE a|b|c\n", and the start command behind "=". */
static void expect(const char *text, const char *want)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    const char *const given[] = {"VERSION=9", "UNUSED=x"};
    struct dockerfile f;
    struct err err;
    if (dockerfile_parse("Dockerfile", str_of(text), given, 2, &a, &f, &err) < 0)
        fail_msg("refused: %s\n%s", err.msg, text);
    buf_printf(&b, "%s\n", f.image);
    for (size_t i = 0; i < f.n_steps; i++) {
        buf_printf(&b, "%s", f.steps[i].type);
        for (size_t k = 0; k < f.steps[i].n_args; k++)
            buf_printf(&b, "%c%s", k ? '|' : ' ', f.steps[i].args[k]);
        buf_append_char(&b, '\n');
    }
    if (f.start_cmd)
        buf_printf(&b, "=%s\n", f.start_cmd);
    buf_append_char(&b, '\0');
    assert_string_equal(buf_data(&b), want);
}

static void refused(const char *text, unsigned line, const char *why)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    struct dockerfile f;
    struct err err;
    char place[64];
    if (dockerfile_parse("Dockerfile", str_of(text), NULL, 0, &a, &f, &err) == 0)
        fail_msg("taken: %s", text);
    (void)snprintf(place, sizeof(place), "Dockerfile:%u: ", line);
    if ((line && strncmp(err.msg, place, strlen(place)) != 0) || !strstr(err.msg, why))
        fail_msg("%s\nnot %s%s", err.msg, place, why);
}

#define BEGIN "USER root\nWORKDIR /\n"
#define END "USER user\nWORKDIR /home/user\n"

static void stages(void **state)
{
    (void)state;
    AUTO_ARENA struct arena a = ARENA_INIT;
    const char *text = "ARG V=1\nFROM golang:$V AS build\nENV A=of-build\nARG B=2\nRUN make\n"
                       "FROM build AS more\nRUN more\nFROM unused\n"
                       "FROM scratchless:$V\nCOPY --from=build /app /bin/app\nCOPY --from=MORE /x /y\n"
                       "COPY --from=2 /z /z\nCOPY --from=uv:1 /uv /uv\nCOPY here /here\nRUN end\n";
    static const struct {
        const char *from;
        int stage;
    } want[] = {{"build", 0}, {"MORE", 1}, {"2", 2}, {"uv:1", -1}, {NULL, -1}};
    struct dockerfile f;
    struct err err;
    if (dockerfile_parse("Dockerfile", str_of(text), NULL, 0, &a, &f, &err) < 0)
        fail_msg("refused: %s", err.msg);
    assert_int_equal(f.n_stages, 3);
    assert_string_equal(f.stages[0].name, "build");
    assert_string_equal(f.stages[0].image, "golang:1");
    assert_int_equal(f.stages[0].n_steps, 4);
    assert_string_equal(f.stages[1].image, "golang:1"); /* with the steps of the first in front */
    assert_int_equal(f.stages[1].n_steps, 5);
    assert_string_equal(f.stages[1].steps[4].args[0], "export V='1' B='2'\nmore");
    assert_string_equal(f.stages[2].name, "2");
    assert_string_equal(f.image, "scratchless:1");
    for (size_t i = 0; i < 5; i++) {
        const struct dockerfile_step *s = &f.steps[2 + i];
        assert_int_equal(s->stage, want[i].stage);
        assert_true(want[i].from ? strcmp(s->from, want[i].from) == 0 : !s->from);
    }
    assert_string_equal(f.steps[7].args[0], "export V='1'\nend"); /* what a stage sets is its own */
    refused("FROM a AS one\nENV A=1\nFROM b\nUSER $A\n", 4, "not known");
    expect("FROM a AS one\nUSER me\nFROM one\nRUN true\n", "a\n" BEGIN "USER me\nRUN true\nWORKDIR /home/user\n");
}

static void whole_files(void **state)
{
    (void)state;
    expect("FROM debian:12\n", "debian:12\n" BEGIN END);
    expect("# comment\nFROM a AS base\nFROM base\nRUN true", "a\n" BEGIN "RUN true\n" END);
    expect(
        "ARG VERSION=1\nFROM python:${VERSION}-slim\nRUN apt-get update && \\\n  # in between\n\n  apt-get install -y x\n",
        "python:9-slim\n" BEGIN "RUN export VERSION='9'\napt-get update &&  apt-get install -y x\n" END);
    expect("FROM a\nWORKDIR /app\nUSER app:staff\nCMD [\"python\", \"it's.py\"]\n",
           "a\n" BEGIN "WORKDIR /app\nUSER app\n='python' 'it'\\''s.py'\n");
    expect("FROM a\nENTRYPOINT [\"/run\"]\nCMD [\"--all\"]\nEXPOSE 80\nLABEL a=b\n",
           "a\n" BEGIN END "='/run' '--all'\n");
    expect("FROM a\nCMD ./serve --port 80\n", "a\n" BEGIN END "=./serve --port 80\n");
    expect("FROM a\r\nRUN [\"echo\", \"a b\"]\r\n", "a\n" BEGIN "RUN 'echo' 'a b'\n" END);
    expect("# escape=`\nFROM a\nRUN dir c:\\ `\n  more\n", "a\n" BEGIN "RUN dir c:\\  more\n" END);
}

static void copies(void **state)
{
    (void)state;
    expect("FROM a\nCOPY --chown=app:app --chmod=0755 . /app\nADD a.txt b*.txt /x/\nCOPY [\"with space\", \"/y\"]\n",
           "a\n" BEGIN
           "COPY .|/app|app:app|0755\nCOPY a.txt|/x/|root|\nCOPY b*.txt|/x/|root|\nCOPY with space|/y|root|\n" END);
    expect("FROM a\nENV D=/data\nCOPY /etc/x $D/x\n", "a\n" BEGIN "ENV D|/data\nCOPY etc/x|/data/x|root|\n" END);
    refused("FROM a\nADD --from=b /x /y", 2, "not supported");
    refused("FROM a\nCOPY --from= /x /y", 2, "without a stage");
    refused("FROM a\nCOPY --from=b /x/../y /y", 2, "outside");
    refused("FROM a\nCOPY ../x /y", 2, "outside of the context");
    refused("FROM a\nCOPY a b /c", 2, "end with /");
    refused("FROM a\nADD https://example.com/x /y", 2, "not supported");
    refused("FROM a\nADD x.tar.gz /y", 2, "does not unpack");
    refused("FROM a\nCOPY x", 2, "a source and a destination");
}

static void variables(void **state)
{
    (void)state;
    expect("FROM a\nENV A=1 B=\"two words\" C='$literal' D=$A\nENV OLD style value\nENV PATH=/opt/bin:$PATH\n",
           "a\n" BEGIN
           "ENV A|1\nENV B|two words\nENV C|\\$literal\nENV D|$A\nENV OLD|style value\nENV PATH|/opt/bin:$PATH\n" END);
    expect(
        "FROM a\nARG N=world\nENV G=hello-$N E=${MISSING:-none}\nWORKDIR /srv/${N}\nARG UNSET\nUSER ${UNSET:-root}\n",
        "a\n" BEGIN "ENV G|hello-world\nENV E|none\nWORKDIR /srv/world\nUSER root\n");
    refused("FROM a\nWORKDIR /$NOBODY_KNOWS", 2, "$NOBODY_KNOWS is not known");
    refused("FROM a\nENV A=\"x", 2, "a quote is not closed");
    refused("FROM a\nENV =x", 2, "NAME=value");
    refused("FROM a\nENV A$=x", 2, "name of a variable");
}

static void what_can_not_be(void **state)
{
    (void)state;
    refused("", 0, "there is no FROM");
    refused("RUN true", 1, "must be FROM");
    expect("FROM scratch", "scratch\n" BEGIN END); /* for who replaces it */
    refused("FROM \"\"", 1, "without an image");
    refused("FROM", 1, "without an image");
    refused("FROM a\nRUN <<EOF\necho\nEOF\n", 2, "here-documents");
    refused("FROM a\n\n# x\nRUN --mount=type=secret,id=x true", 4, "not supported");
    refused("FROM a\nSHELL [\"/bin/zsh\"]", 2, "SHELL is not supported");
    refused("FROM a\nONBUILD RUN x", 2, "not supported");
    refused("FROM a\nRUN \\\n", 2, "without a command");
    refused("FROM a\xff\n", 0, "not text");
    expect("FROM a\nRUN cat <<<word; x=$((1<<2))\n", "a\n" BEGIN "RUN cat <<<word; x=$((1<<2))\n" END);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stages), cmocka_unit_test(whole_files),
                                       cmocka_unit_test(copies), cmocka_unit_test(variables),
                                       cmocka_unit_test(what_can_not_be)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
