/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state COMMAND...: times what changes a sandbox's state, over one kept-alive connection, in microseconds, one line a
 * sample. bench/run calls it. Every answer is checked: a wrong one ends it with exit code 1.
 *
 *   pause N ID TOKEN            "pause resume exec": exec is from the request to resume to the end event of an echo behind it
 *   snapshot N ID               "us snapshotID"
 *   fork COUNT ID               "us" of the call; then "us" until each fork has run an echo; then the ids of the forks, one line
 *   cycle N TEMPLATE            "us" of the create alone; each is killed before the next
 *   drop                        snapshot ids from stdin: "us"
 */
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BODY_MAX = 1024, FORKS_MAX = 1000 };

static struct client one;
static struct sandbox forks[FORKS_MAX];

/* Returns the answer's text. */
static const char *call(const char *method, const char *path, const char *body, int wanted)
{
    char head[BODY_MAX];
    (void)snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n",
                   method, path, body ? strlen(body) : 0);
    client_send(&one, head, body, body ? strlen(body) : 0);
    client_head(&one);
    const char *text = client_text(&one);
    if (one.status != wanted)
        die("%s %s: %d %.300s", method, path, one.status, text);
    return text;
}

/* The value of the first "name" behind `from`; returns where it ended, NULL when there is none. */
static const char *text_of(const char *from, const char *name, char *to, size_t size)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "\"%s\":\"", name);
    const char *p = strstr(from, key);
    if (!p)
        return NULL;
    p += strlen(key);
    size_t n = strcspn(p, "\"");
    if (n >= size)
        die("%s is longer than expected", name);
    memcpy(to, p, n);
    to[n] = 0;
    return p + n;
}

static void pause_resume(uint64_t n, const struct sandbox *sb)
{
    char pause[128], connect[128];
    double first, end;
    (void)snprintf(pause, sizeof(pause), "/sandboxes/%s/pause", sb->id);
    (void)snprintf(connect, sizeof(connect), "/sandboxes/%s/connect", sb->id);
    for (uint64_t i = 0; i < n; i++) {
        double start = now_us();
        (void)call("POST", pause, "{}", 204);
        double paused = now_us();
        (void)usleep(20000);
        double again = now_us();
        (void)call("POST", connect, "{\"timeout\":600}", 201);
        double resumed = now_us();
        run_echo(&one, sb, false, &first, &end);
        printf("%.1f %.1f %.1f\n", paused - start, resumed - again, now_us() - again);
        (void)usleep(20000);
    }
}

static void snapshot(uint64_t n, const char *id)
{
    char path[128], name[256];
    (void)snprintf(path, sizeof(path), "/sandboxes/%s/snapshots", id);
    for (uint64_t i = 0; i < n; i++) {
        double start = now_us();
        const char *text = call("POST", path, "{}", 201);
        double end = now_us();
        if (!text_of(text, "snapshotID", name, sizeof(name)))
            die("snapshot: no snapshotID in %.300s", text);
        printf("%.1f %s\n", end - start, name);
        (void)usleep(50000);
    }
}

static void fork_many(uint64_t count, const char *id)
{
    char path[128], body[64];
    static char answer[CLIENT_FRAME_MAX + 1];
    uint64_t n = 0;
    double first, end;
    (void)snprintf(path, sizeof(path), "/sandboxes/%s/fork", id);
    (void)snprintf(body, sizeof(body), "{\"count\":%llu,\"timeout\":600}", (unsigned long long)count);
    double start = now_us();
    memcpy(answer, call("POST", path, body, 201), sizeof(answer));
    double forked = now_us();
    if (strstr(answer, "\"error\""))
        die("fork: %.300s", strstr(answer, "\"error\""));
    for (const char *p = answer; n < count && (p = strstr(p, "\"sandbox\":")) != NULL; p++, n++)
        if (!text_of(p, "sandboxID", forks[n].id, sizeof(forks[n].id)) ||
            !text_of(p, "envdAccessToken", forks[n].token, sizeof(forks[n].token)))
            die("fork: no id or token in %.300s", p);
    if (n != count)
        die("fork: %llu of %llu", (unsigned long long)n, (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++)
        run_echo(&one, &forks[i], false, &first, &end);
    printf("%.1f\n%.1f\n", forked - start, now_us() - start);
    for (uint64_t i = 0; i < count; i++)
        printf("%s%s", forks[i].id, i + 1 < count ? " " : "\n");
}

static void create_from(const char *template, struct sandbox *ret_sandbox)
{
    char body[BODY_MAX];
    (void)snprintf(body, sizeof(body), "{\"templateID\":\"%s\",\"timeout\":600,\"secure\":true}", template);
    const char *text = call("POST", "/sandboxes", body, 201);
    if (!text_of(text, "sandboxID", ret_sandbox->id, sizeof(ret_sandbox->id)) ||
        !text_of(text, "envdAccessToken", ret_sandbox->token, sizeof(ret_sandbox->token)))
        die("create: no id or token in %.300s", text);
}

static void cycle(uint64_t n, const char *template)
{
    for (uint64_t i = 0; i < n; i++) {
        struct sandbox sb;
        double start = now_us();
        create_from(template, &sb);
        printf("%.1f\n", now_us() - start);
        sandbox_kill(&one, sb.id);
        (void)usleep(30000); /* as between requests of one user: what is kept ready is made again */
    }
}

static void drop_some(void)
{
    char name[512];
    while (fgets(name, sizeof(name), stdin)) {
        char path[2048] = "/templates/";
        size_t at = strlen(path);
        name[strcspn(name, "\n")] = 0;
        for (const char *p = name; *p && at + 4 < sizeof(path); p++)
            at += (size_t)snprintf(path + at, sizeof(path) - at, strchr("/:", *p) ? "%%%02X" : "%c", *p);
        double start = now_us();
        (void)call("DELETE", path, NULL, 204);
        printf("%.1f\n", now_us() - start);
    }
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    client_open(&one, 0);
    if (is(command, "pause", argc, 5)) {
        struct sandbox sb = given_sandbox(argv + 3);
        pause_resume(number(argv[2], 100000), &sb);
    } else if (is(command, "snapshot", argc, 4)) {
        snapshot(number(argv[2], 10000), argv[3]);
    } else if (is(command, "fork", argc, 4)) {
        fork_many(number(argv[2], FORKS_MAX), argv[3]);
    } else if (is(command, "cycle", argc, 4)) {
        cycle(number(argv[2], 10000), argv[3]);
    } else if (is(command, "drop", argc, 2)) {
        drop_some();
    } else {
        die("usage: state pause|snapshot|fork|cycle|drop ...: see bench/state.c");
    }
    client_close(&one);
    return 0;
}
