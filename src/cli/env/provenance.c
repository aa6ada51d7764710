/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/provenance.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/agent/receipt.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NOTE_MAX = 16 << 20, PROVENANCE_SHOWN_MAX = 12, PROVENANCE_TRIES = 6, PROMPT_MAX = 4096 };

#define NOTES_REF "refs/notes/cove"
#define NOTES_REFSPEC "refs/notes/cove:refs/notes/cove"

/*
 * The note is made in our own directory and fetched from there, as commits are: its objects come in a pack that `git gc
 * --prune=now` here keeps until the ref leads to them. What somebody else wrote meanwhile makes the fetch fail, and
 * then it is made once more.
 */
static int provenance_write(struct env *e, const char *const *commits, size_t n, int file)
{
    struct repo *r = &e->repo;
    AUTO_FREE char *before = repo_commit(r, REPO_THEIRS, NOTES_REF);
    r->ctx->err.code = ERR_OK;
    if ((before ? REPO_GIT(r, REPO_OURS, "update-ref", NOTES_REF, before)
                : REPO_GIT(r, REPO_OURS, "update-ref", "-d", NOTES_REF)) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const char *const args[] = {"notes", "--ref=cove", "append", "-F", "-", commits[i], NULL};
        if (lseek(file, 0, SEEK_SET) < 0 || repo_git(r, REPO_OURS, &(struct repo_io){file, -1, NULL}, args) < 0)
            return -1;
    }
    return REPO_GIT(r, REPO_THEIRS, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
                    r->ours, NOTES_REFSPEC);
}

/* Lines that are empty, as between two notes, are passed over. */
static int provenance_append_all(struct env *e, const char *const *commits, size_t n, const json_t *line)
{
    AUTO_FREE char *text = json_dumps(line, JSON_COMPACT);
    AUTO_CLOSE int file = memfd_create("note", MFD_CLOEXEC);
    if (!text || strlen(text) > PROVENANCE_LINE_MAX)
        return err_set(&e->ctx->err, ERR_RESOURCE_EXHAUSTED, "the note is too long");
    /* Commands of ours take turns. */
    AUTO_CLOSE int turn = open(e->repo.common, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (turn < 0 || flock(turn, LOCK_EX) < 0)
        return err_errno(&e->ctx->err, errno, "wait for %s", e->repo.common);
    if (file < 0 || fd_write_all(file, text, strlen(text)) < 0 || fd_write_all(file, "\n", 1) < 0)
        return err_errno(&e->ctx->err, errno, "write a note");
    int done = provenance_write(e, commits, n, file);
    for (unsigned i = 0; done < 0 && i < PROVENANCE_TRIES && e->ctx->err.code != ERR_FAILED_PRECONDITION; i++) {
        (void)usleep(i * 50000);
        done = provenance_write(e, commits, n, file);
    }
    if (done == 0)
        e->ctx->err.code = ERR_OK;
    return done;
}

int provenance_append(struct env *e, const char *commit, const json_t *line)
{
    return provenance_append_all(e, &commit, 1, line);
}

json_t *provenance_policy(struct env *e)
{
    AUTO(service_close) struct service *s = service_open(e->ctx);
    AUTO_FREE char *target = service_target(e->id, "/network");
    AUTO_JSON json_t *policy = NULL, *secrets = json_array();
    if (!s || service_call(s, "GET", target, NULL, NULL, &policy) < 0)
        return NULL;
    JSON_FOREACH (one, json_object_get(policy, "inject"))
        JSON_FOREACH (what, json_object_get(one, "placeholders"))
            (void)json_array_append_new(secrets, json_pack("{s:O?,s:O?}", "host", json_object_get(one, "host"),
                                                           "secret", json_object_get(what, "secret")));
    (void)json_object_del(policy, "inject");
    if (json_array_size(secrets))
        (void)json_object_set(policy, "secrets", secrets);
    return TAKE_PTR(policy);
}

/*
 * What a line says, but for `seq` and `hash`: those are of the event that has this digest and the commits' names, so
 * that no other line and no other commit can claim it.
 */
static char *provenance_digest(const json_t *line)
{
    AUTO_JSON json_t *said = json_copy((json_t *)line);
    (void)json_object_del(said, "seq");
    (void)json_object_del(said, "hash");
    AUTO_FREE char *text = json_dumps(said, JSON_COMPACT | JSON_SORT_KEYS);
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char hex[2 * SHA256_DIGEST_LENGTH + 1];
    if (!text)
        return NULL;
    (void)SHA256((const unsigned char *)text, strlen(text), digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return mem_strdup(hex);
}

/* The event of the record with this number. NULL: there is none. */
static json_t *provenance_event(struct context *ctx, const char *id, long long seq)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    AUTO_FREE char *events = service_target(id, "/events?from=%lld", seq);
    json_t *event = NULL;
    return s && service_stream(s, "GET", events) == 0 && service_object(s, &event) > 0 &&
                   json_integer_value(json_object_get(event, "seq")) == seq
               ? json_incref(event)
               : NULL;
}

/* Has the record name these commits and the line, which gets the event's `seq` and `hash`. */
static int provenance_record(struct env *e, const char *const *commits, size_t n, json_t *line)
{
    AUTO(service_close) struct service *s = service_open(e->ctx);
    AUTO_FREE char *target = service_target(e->id, "/received"), *digest = provenance_digest(line);
    AUTO_JSON json_t *names = json_array(), *answer = NULL;
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(names, json_string(commits[i]));
    AUTO_JSON json_t *body = json_pack("{s:s, s:O, s:s}", "environment", e->name, "commits", names, "digest", digest);
    if (!s || service_call(s, "POST", target, body, "recording what was received", &answer) < 0)
        return -1;
    const json_t *seq = json_object_get(answer, "seq");
    AUTO_JSON json_t *event = provenance_event(e->ctx, e->id, (long long)json_integer_value(seq));
    const json_t *hash = json_object_get(event, "hash");
    if (!hash)
        return err_set(&e->ctx->err, ERR_UNAVAILABLE, "the record doesn't show what was received");
    (void)json_object_set(line, "seq", (json_t *)seq);
    (void)json_object_set(line, "hash", (json_t *)hash);
    return 0;
}

/* The last one that is somebody's, not Cove's own carrying. */
static json_t *provenance_command(const json_t *commands)
{
    for (size_t i = json_array_size(commands); i-- > 0;) {
        json_t *one = json_array_get(commands, i);
        const char *tag = json_string_value(json_object_get(one, "tag"));
        if (!(tag && strcmp(tag, ENV_TAG) == 0))
            return one;
    }
    return NULL;
}

/*
 * On the commits that `before` and what it began with, or was rebased onto, don't have and the environment's head
 * has.
 */
static int provenance_note(struct env *e, const char *before)
{
    AUTO_BUF struct buf commits = BUF_INIT(1 << 20);
    AUTO_JSON json_t *receipt = NULL, *policy = NULL, *line = NULL;
    AUTO_FREE char *not = mem_printf("^%s", before), *nor = mem_printf("^%s", e->base),
                   *most = mem_printf("-n%d", PROVENANCE_COMMITS_MAX); /* what HEAD has came from here */
    struct str rest, one;
    if (REPO_ASK(&e->repo, REPO_THEIRS, &commits, "rev-list", most, e->head, not, nor, "^HEAD", "--") < 0)
        return -1;
    rest = repo_line(&commits);
    if (!rest.n)
        return 0;
    if (receipt_collect(e->ctx, e->id, 1, NULL, &receipt) < 0 || !(policy = provenance_policy(e)))
        return -1;
    json_t *command = provenance_command(json_object_get(receipt, "commands"));
    size_t n = e->prompt ? strnlen(e->prompt, PROMPT_MAX) : 0;
    while (n && (e->prompt[n] & 0xc0) == 0x80) /* not within a character */
        n--;
    line = json_pack("{s:s, s:o*, s:O, s:s, s:s, s:O?, s:O, s:O, s:O}", "kind", "commit", "prompt",
                     n ? json_stringn(e->prompt, n) : NULL, "explained", json_object_get(receipt, "explained"),
                     "environment", e->name, "sandbox", e->id, "command", command, "policy", policy, "reached",
                     json_object_get(receipt, "reached"), "refused", json_object_get(receipt, "refused"));
    char *all[PROVENANCE_COMMITS_MAX];
    n = 0;
    while (n < PROVENANCE_COMMITS_MAX && str_split(&rest, '\n', &one) && one.n)
        all[n++] = mem_strndup(one.p, one.n);
    int done = provenance_record(e, (const char *const *)all, n, line) < 0
                   ? -1
                   : provenance_append_all(e, (const char *const *)all, n, line);
    while (n)
        mem_free(all[--n]);
    return done;
}

int provenance_receive(struct env *e)
{
    struct err seen = e->ctx->err;
    int r = e->at.base ? 0 : env_look(e);
    AUTO_FREE char *before = mem_strdup(r < 0 ? e->base : e->at.head);
    e->ctx->err = r < 0 ? seen : e->ctx->err; /* the branch was removed here, or env_receive() says it */
    return env_receive(e) < 0 || (strcmp(before, e->at.head) != 0 && provenance_note(e, before) < 0) ? -1 : 0;
}

/* ---- why ---- */

/* The newest line of that kind; notes come from other people, too. */
static json_t *provenance_read(struct repo *r, const char *commit)
{
    AUTO_BUF struct buf note = BUF_INIT(NOTE_MAX);
    struct str rest, line;
    json_t *found = NULL;
    if (REPO_ASK(r, REPO_THEIRS, &note, "notes", "--ref=cove", "show", commit) < 0)
        return NULL;
    rest = buf_str(&note);
    while (str_split(&rest, '\n', &line)) {
        json_t *one = line.n ? json_loadb(line.p, line.n, JSON_REJECT_DUPLICATES, NULL) : NULL;
        const char *kind = json_string_value(json_object_get(one, "kind"));
        if (kind && strcmp(kind, "commit") == 0) {
            json_decref(found);
            found = one;
        } else {
            json_decref(one);
        }
    }
    return found;
}

static bool provenance_names(const json_t *event, const char *commit)
{
    JSON_FOREACH (one, json_object_get(json_object_get(event, "data"), "commits"))
        if (json_is_string(one) && strcmp(json_string_value(one), commit) == 0)
            return true;
    return false;
}

/* NULL: it does; else what is wrong. */
static const char *provenance_check(struct context *ctx, const char *commit, const json_t *line)
{
    const char *id = json_string_value(json_object_get(line, "sandbox"));
    const char *hash = json_string_value(json_object_get(line, "hash"));
    long long seq = (long long)json_integer_value(json_object_get(line, "seq"));
    if (!id || !id_is_sandbox(str_of(id)) || !hash || seq <= 0)
        return "the note names no event of a record";
    AUTO(service_close) struct service *s = service_open(ctx);
    AUTO_FREE char *verify = service_target(id, "/verify"), *digest = provenance_digest(line);
    AUTO_JSON json_t *answer = NULL, *event = NULL;
    if (!s || service_call(s, "GET", verify, NULL, NULL, &answer) < 0)
        return "the record is not there any more, or can't be asked";
    if (!json_is_true(json_object_get(answer, "intact")))
        return "the record was changed: its hashes don't fit";
    if (!(event = provenance_event(ctx, id, seq)))
        return "the record has no such event any more";
    const char *theirs = json_string_value(json_object_get(event, "hash"));
    if (!theirs || strcmp(theirs, hash) != 0)
        return "the record never had that hash: the note or the record is another's";
    const char *kind = json_string_value(json_object_get(event, "kind")),
               *said = json_string_value(json_object_get(json_object_get(event, "data"), "digest"));
    if (!kind || strcmp(kind, "env.received") != 0 || !provenance_names(event, commit))
        return "the record doesn't say that this commit came out: the note is another commit's";
    return digest && said && strcmp(said, digest) == 0 ? NULL : "the note was changed since the record got its digest";
}

static void provenance_tell(const char *what, struct str text)
{
    (void)printf("%-9s ", what);
    terminal_print(stdout, true, text); /* a line of its own, for programs that read it, too */
    (void)putchar('\n');
}

static void provenance_tell_all(const json_t *line)
{
    static const char *const lists[] = {"reached", "refused"};
    const json_t *command = json_object_get(line, "command"), *policy = json_object_get(line, "policy");
    AUTO_BUF struct buf argv = BUF_INIT(64 * 1024), rules = BUF_INIT(64 * 1024);
    const char *text;
    size_t n;
    print_words(&argv, json_object_get(command, "argv"), 1000);
    provenance_tell("command", buf_len(&argv) ? buf_str(&argv) : STR("none that was run through the service"));
    if ((text = json_string_value(json_object_get(line, "prompt"))))
        provenance_tell("prompt", str_of(text));
    JSON_FOREACH (one, json_object_get(line, "explained"))
        provenance_tell("because", str_of(json_is_string(one) ? json_string_value(one) : "?"));
    if ((text = json_string_value(json_object_get(command, "actor"))))
        provenance_tell("by", str_of(text));
    if ((text = json_string_value(json_object_get(line, "environment"))))
        provenance_tell("in", str_of(text));
    text = json_string_value(json_object_get(policy, "default"));
    n = json_array_size(json_object_get(policy, "rules"));
    buf_printf(&rules, "%zu rule%s, else %.10s%s", n, n == 1 ? "" : "s", text ? text : "?", n ? ":" : "");
    JSON_FOREACH_AT (i, one, json_object_get(policy, "rules")) {
        if (i >= PROVENANCE_SHOWN_MAX)
            break;
        const char *allow = json_string_value(json_object_get(one, "allow"));
        const char *deny = json_string_value(json_object_get(one, "deny"));
        buf_printf(&rules, " %s%.100s", allow ? "" : "not ", allow ? allow : deny ? deny : "?");
    }
    provenance_tell("policy", buf_str(&rules));
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        n = 0;
        JSON_FOREACH_MEMBER (host, one, json_object_get(line, lists[i]))
            if (n++ < PROVENANCE_SHOWN_MAX)
                provenance_tell(lists[i], str_of(host));
    }
}

/* "<commit> <line there> <line here> 1" is how git blame's answer begins. */
static char *provenance_blame(struct repo *r, const char *file, uint64_t line)
{
    AUTO_BUF struct buf text = BUF_INIT(1 << 20);
    AUTO_FREE char *range = mem_printf("%llu,%llu", (unsigned long long)line, (unsigned long long)line);
    if (REPO_ASK(r, REPO_THEIRS, &text, "blame", "--porcelain", "--no-textconv", "-L", range, "HEAD", "--", file) < 0)
        return NULL;
    struct str rest = buf_str(&text), commit;
    if (!str_split(&rest, ' ', &commit) || commit.n != 40) {
        (void)err_set(&r->ctx->err, ERR_NOT_FOUND, "the origin of %.100s:%llu is unknown", file,
                      (unsigned long long)line);
        return NULL;
    }
    return mem_strndup(commit.p, commit.n);
}

int provenance_why(struct context *ctx, const char *path, const char *file, uint64_t line)
{
    struct repo r;
    AUTO_FREE char *commit = NULL;
    AUTO_BUF struct buf subject = BUF_INIT(64 * 1024);
    AUTO_JSON json_t *note = NULL;
    int status = STATUS_FAILED;
    if (repo_open(ctx, path, NULL, 0, &r) < 0 || !(commit = provenance_blame(&r, file, line)) ||
        REPO_ASK(&r, REPO_THEIRS, &subject, "log", "-1", "--format=%h %s (%an, %ad)", "--no-show-signature", commit,
                 "--") < 0) {
        repo_fini(&r);
        return context_fail(ctx, STATUS_FAILED);
    }
    note = provenance_read(&r, commit);
    ctx->err.code = ERR_OK;
    const char *why =
        note ? provenance_check(ctx, commit, note) : "it has no note: no environment of Cove brought it here";
    status = why ? STATUS_FAILED : STATUS_OK;
    if (ctx->json) {
        AUTO_JSON json_t *all =
            json_pack("{s:s, s:b, s:s?, s:O?}", "commit", commit, "verified", !why, "why", why, "note", note);
        print_json(all);
    } else {
        provenance_tell("commit", repo_line(&subject));
        if (note)
            provenance_tell_all(note);
        provenance_tell("record", why ? str_of(why) : STR("complete; it names this commit, and has the note's digest"));
    }
    repo_fini(&r);
    return status;
}
