/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/build/template_build.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/build/build_context.h"
#include "cli/build/dockerfile.h"
#include "cli/build/template_build_auth.h"
#include "cli/domain/secret_input.h"
#include "cli/exec/terminal.h"
#include "cli/files/copy.h"
#include "cli/print.h"
#include "cli/service.h"
#include "config/units.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POLL_MS = 150, TEMPLATE_CHUNK = 256 * 1024, STEP_TEXT_MAX = 64, STAGES_MAX = 2 * DOCKERFILE_STAGES_MAX };

/* A stage, or an image, that files are taken from: a template for as long as the build takes. */
struct built_stage {
    const char *from;
    int stage;
    char *template_id; /* owned */
};

struct build_making {
    struct context *ctx;
    const struct template_build_options *o;
    struct arena arena;
    struct dockerfile file;
    struct local_context *context;
    struct service *s;
    json_t *spec, *policy; /* policy: of its steps; NULL: none was given */
    struct arena secrets;  /* wiped */
    struct secret_input password;
    struct built_stage stages[STAGES_MAX];
    size_t n_stages;
    struct terminal_progress progress; /* of what goes on at the moment */
    usec_t since;                      /* it does */
    const char *doing, *what;          /* "packing", a source of COPY */
    uint64_t total;                    /* bytes of it; 0: not known yet */
    char step[STEP_TEXT_MAX];          /* of the build, as its log calls it: "[builder 2/6]" */
};

static bool is_silent(const struct build_making *m)
{
    return m->o->quiet || m->ctx->json;
}

static void template_build_say(struct build_making *m, const char *text)
{
    progress_end(&m->progress);
    if (!is_silent(m))
        terminal_line(stderr, "%s", text);
}

static uint64_t seconds_since(usec_t then)
{
    return (clock_mono() - then) / USEC_PER_SEC;
}

/* What takes long enough for somebody to wonder is shown on a terminal. */
static void start_doing(struct build_making *m, const char *doing, const char *what, uint64_t total)
{
    progress_end(&m->progress);
    progress_start(&m->progress, is_silent(m));
    m->since = clock_mono();
    m->doing = doing;
    m->what = what;
    m->total = total;
}

static void show_bytes(void *ctx, uint64_t bytes)
{
    struct build_making *m = ctx;
    char done[UNIT_TEXT_MAX], all[UNIT_TEXT_MAX];
    unit_format_size(bytes, done);
    unit_format_size(m->total, all);
    progress_show(&m->progress, "%s %.200s: %s%s%s, %llu s", m->doing, m->what, done, m->total ? " of " : "",
                  m->total ? all : "", (unsigned long long)seconds_since(m->since));
}

/* ---- what is to be built ---- */

static int read_dockerfile(struct build_making *m, const char *path, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(DOCKERFILE_MAX + 1);
    int r = fd_read_file(AT_FDCWD, path, &text);
    if (r < 0)
        return err_errno(err, r, "read %s", path);
    struct str s = arena_str(&m->arena, buf_str(&text));
    if (dockerfile_parse(path, s, m->o->build_args, m->o->n_build_args, &m->arena, &m->file, err) < 0)
        return -1;
    for (size_t i = 0; i < m->file.n_notes; i++)
        template_build_say(m, m->file.notes[i]);
    return 0;
}

static int find_dockerfile(struct build_making *m, struct err *err)
{
    const struct template_build_options *o = m->o;
    bool has_base = o->from_image || o->from_template || o->from_oci;
    if (!o->file && has_base && !o->names_context)
        return 0;
    const char *path = o->file ? o->file : arena_printf(&m->arena, "%s/Dockerfile", o->context);
    if (!o->file && has_base && access(path, F_OK) < 0 && errno == ENOENT)
        return 0;
    if (read_dockerfile(m, path, err) == 0)
        return 0;
    if (!o->file)
        context_hint(m->ctx,
                     o->is_docker
                         ? "name a Dockerfile with -f FILE; in one, 'FROM e2bdev/base' begins with the base template"
                         : "name a Dockerfile with -f, or what to begin with: --from-template base");
    return -1;
}

/* ---- credentials of the registry ---- */

/* The service is told along with the image; it keeps them no longer than the build. */
static int add_auth(struct build_making *m, json_t *spec, const char *image)
{
    const struct template_build_options *o = m->o;
    const char *registry = registry_of(&m->secrets, image);
    struct registry_auth auth = {0};
    if (o->registry_user) {
        auth.user = o->registry_user;
        auth.password = arena_strndup(&m->secrets, m->password.bytes, m->password.n);
    } else if (o->docker_config) {
        if (registry_auth_load(*o->docker_config ? o->docker_config : NULL, registry, &m->secrets, &auth,
                               &m->ctx->err) < 0)
            return -1;
        template_build_say(
            m, auth.user ? arena_printf(&m->arena, "the configuration of Docker has credentials for %s", registry)
                         : arena_printf(&m->arena, "the configuration of Docker has no credentials for %s", registry));
    }
    if (!auth.user)
        return 0;
    json_t *given = json_pack("{s:s,s:s}", "username", auth.user, "password", auth.password);
    if (!given)
        return err_set(&m->ctx->err, ERR_INVALID_ARGUMENT, "the registry's user name or password is not UTF-8");
    (void)json_object_set_new(spec, "registry", given);
    return 0;
}

/* What it begins with, and the credentials for that. */
static int set_from(struct build_making *m, json_t *spec, const char *member, const char *image)
{
    if (strcmp(image, "scratch") == 0)
        return err_set(
            &m->ctx->err, ERR_UNIMPLEMENTED,
            "FROM scratch is not supported: name an image, or replace it by --from-image, --from-template or "
            "--from-oci");
    (void)json_object_set_new(spec, member, json_string(image));
    return add_auth(m, spec, image);
}

/* Before anything else, so that whoever types it is not kept waiting. */
static int read_password(struct build_making *m)
{
    if (m->o->registry_user || m->o->docker_config)
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (!m->o->registry_user)
        return 0;
    if (secret_input_read(m->ctx, "the registry's password", NULL, &m->password) < 0)
        return -1;
    return memchr(m->password.bytes, '\0', m->password.n)
               ? err_set(&m->ctx->err, ERR_INVALID_ARGUMENT, "the registry's password holds a NUL")
               : 0;
}

static void wipe_auth(const json_t *spec)
{
    const json_t *password = json_object_get(json_object_get(spec, "registry"), "password");
    if (password)
        mem_wipe((char *)(uintptr_t)json_string_value(password), json_string_length(password));
}

static void forget_auth(struct build_making *m)
{
    wipe_auth(m->spec);
    secret_input_wipe(&m->password);
    arena_wipe(&m->secrets);
}

/* ---- sending ---- */

static int send_fd(struct build_making *m, const char *what, const char *hash, int fd)
{
    struct context *ctx = m->ctx;
    AUTO_FREE char *target = mem_printf("/cove/v1/uploads/%s", hash), *chunk = mem_alloc(TEMPLATE_CHUNK);
    struct stat st;
    char size[UNIT_TEXT_MAX];
    if (fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_errno(&ctx->err, errno, "read the files to send");
    start_doing(m, "sending", what, (uint64_t)st.st_size);
    if (service_begin(m->s, "PUT", target, st.st_size) < 0)
        return -1;
    for (off_t sent = 0; sent < st.st_size;) {
        ssize_t n = read(fd, chunk, TEMPLATE_CHUNK);
        if (n <= 0)
            return err_set(&ctx->err, ERR_ABORTED, "the files changed while they were sent");
        int r = http_client_write(service_client(m->s), str_n(chunk, (size_t)n));
        if (r < 0)
            break; /* the answer says why */
        sent += n;
        show_bytes(m, (uint64_t)sent);
    }
    progress_end(&m->progress);
    int ignored UNUSED = http_client_end(service_client(m->s)); /* likewise */
    if (service_answer(m->s, is_silent(m) ? NULL : "sending files", NULL) < 0)
        return ctx->err.code == ERR_ALREADY_EXISTS ? 0
                                                   : -1; /* somebody was faster: of the same files, as the hash says */
    unit_format_size((uint64_t)st.st_size, size);
    if (seconds_since(m->since) > 0)
        template_build_say(m, arena_printf(&m->arena, "sent %s: %s in %llu s", what, size,
                                           (unsigned long long)seconds_since(m->since)));
    return 0;
}

static int is_present(struct build_making *m, const char *hash)
{
    AUTO_FREE char *target = mem_printf("/cove/v1/uploads/%s", hash);
    AUTO_JSON json_t *answer = NULL;
    if (service_call(m->s, "GET", target, NULL, NULL, &answer) < 0)
        return -1;
    return json_is_true(json_object_get(answer, "present"));
}

/* A file without a name that is gone when it is closed. */
static int scratch_file(struct err *err)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir && *dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? err_errno(err, errno, "make a file for the upload") : fd;
}

static int send_source(struct build_making *m, struct local_context *context, const char *source,
                       char ret_hash[static CONTEXT_HASH_LEN + 1])
{
    struct err *err = &m->ctx->err;
    char size[UNIT_TEXT_MAX];
    build_context_watch(context, show_bytes, m);
    start_doing(m, "reading", source, 0);
    if (build_context_hash(context, source, ret_hash, err) < 0)
        return -1;
    int r = is_present(m, ret_hash);
    if (r)
        return r < 0 ? -1 : 0;
    unit_format_size(build_context_bytes(context), size);
    template_build_say(m, arena_printf(&m->arena, "sending %s: %s", source, size));
    AUTO_CLOSE int fd = scratch_file(err);
    start_doing(m, "packing", source, build_context_bytes(context));
    if (fd < 0 || build_context_pack(context, source, fd, err) < 0)
        return -1;
    return send_fd(m, source, ret_hash, fd);
}

static int send_archive(struct build_making *m)
{
    char hash[CONTEXT_HASH_LEN + 1];
    struct stat st;
    char size[UNIT_TEXT_MAX];
    start_doing(m, "reading", m->o->from_oci, 0);
    if (build_context_hash_file(m->o->from_oci, show_bytes, m, hash, &m->ctx->err) < 0)
        return -1;
    (void)json_object_set_new(m->spec, "archive", json_string(hash));
    int r = is_present(m, hash);
    if (r)
        return r < 0 ? -1 : 0;
    AUTO_CLOSE int fd = open(m->o->from_oci, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(&m->ctx->err, errno, "open %s", m->o->from_oci);
    unit_format_size((uint64_t)st.st_size, size);
    template_build_say(m, arena_printf(&m->arena, "sending %s: %s", m->o->from_oci, size));
    return send_fd(m, m->o->from_oci, hash, fd);
}

static int send_from_stage(struct build_making *m, const struct dockerfile_step *s,
                           char ret_hash[static CONTEXT_HASH_LEN + 1]);

static int send_files(struct build_making *m, const struct dockerfile_step *s,
                      char ret_hash[static CONTEXT_HASH_LEN + 1])
{
    if (s->from)
        return send_from_stage(m, s, ret_hash);
    if (!m->context && build_context_open(m->o->context, &m->context, &m->ctx->err) < 0)
        return -1;
    return send_source(m, m->context, s->args[0], ret_hash);
}

static int add_steps(struct build_making *m, json_t *spec, const struct dockerfile_step *all, size_t n)
{
    json_t *steps = json_array();
    (void)json_object_set_new(spec, "steps", steps);
    if (m->policy)
        (void)json_object_set(spec, "network", m->policy);
    for (size_t i = 0; i < n; i++) {
        const struct dockerfile_step *s = &all[i];
        json_t *step = json_object(), *args = json_array();
        (void)json_array_append_new(steps, step);
        (void)json_object_set_new(step, "type", json_string(s->type));
        (void)json_object_set_new(step, "args", args);
        for (size_t k = 0; k < s->n_args; k++)
            (void)json_array_append_new(args, json_string(s->args[k]));
        char hash[CONTEXT_HASH_LEN + 1];
        if (strcmp(s->type, "COPY") != 0)
            continue;
        if (send_files(m, s, hash) < 0)
            return err_prefix(&m->ctx->err, "line %u", s->line);
        (void)json_object_set_new(step, "files", json_string(hash));
    }
    return 0;
}

static int make_spec(struct build_making *m)
{
    const struct template_build_options *o = m->o;
    m->spec = json_object();
    if (o->from_oci) {
        if (send_archive(m) < 0)
            return -1;
    } else if (o->from_template) {
        (void)json_object_set_new(m->spec, "template", json_string(o->from_template));
    } else {
        if (set_from(m, m->spec, o->from_image ? "image" : "from", o->from_image ? o->from_image : m->file.image) < 0)
            return -1;
    }
    (void)json_object_set_new(m->spec, "force", json_boolean(o->no_cache));
    (void)json_object_set_new(m->spec, "start_cmd", json_string(o->start_cmd ? o->start_cmd : m->file.start_cmd));
    (void)json_object_set_new(m->spec, "ready_cmd", json_string(o->ready_cmd));
    (void)json_object_set_new(m->spec, "tier", json_string(o->tier));
    (void)json_object_set_new(m->spec, "memory", json_boolean(!o->no_memory));
    return add_steps(m, m->spec, m->file.steps, m->file.n_steps);
}

/* ---- following ---- */

/* "[builder 2/6] RUN make" is of that step. */
static void note_step(struct build_making *m, const char *line)
{
    size_t n = *line == '[' ? strcspn(line, "]") + 1 : 0;
    if (n == 0 || n >= sizeof(m->step) || (strncmp(m->step, line, n) == 0 && !m->step[n]))
        return;
    (void)snprintf(m->step, sizeof(m->step), "%.*s", (int)n, line);
    m->since = clock_mono();
}

/* A step without a word is seen to go on. */
static void show_step(struct build_making *m)
{
    progress_show(&m->progress, "%s %llu s", *m->step ? m->step : "waiting for the build,",
                  (unsigned long long)seconds_since(m->since));
}

static void template_build_print_lines(struct build_making *m, const json_t *answer, json_int_t *after)
{
    JSON_FOREACH (line, json_object_get(answer, "lines")) {
        note_step(m, service_text(line, "message"));
        *after = json_integer_value(json_object_get(line, "seq"));
        if (m->ctx->json) {
            print_json(line);
            (void)fflush(stdout);
        } else if (strcmp(service_text(line, "level"), "debug") != 0) {
            template_build_say(m, service_text(line, "message"));
            progress_start(&m->progress, is_silent(m));
        }
    }
}

static volatile sig_atomic_t interrupted; /* by this signal; a second one ends us at once */

static void template_build_on_signal(int sig)
{
    interrupted = sig;
}

static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction catch = {.sa_handler = template_build_on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    struct sigaction now;
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            (void)sigaction(signals[i], &catch, NULL);
}

/* Who started it and leaves does not want it any more. Does not return, but when it can't be cancelled. */
static void drop_stages(struct build_making *m);

static int cancel(struct build_making *m, const char *id)
{
    progress_end(&m->progress);
    AUTO_FREE char *target = mem_printf("/cove/v1/builds/%s", id);
    if (service_call(m->s, "DELETE", target, NULL, "cancelling the build", NULL) < 0)
        return err_prefix(&m->ctx->err, "cancel the build");
    template_build_say(m, "the build was cancelled");
    drop_stages(m);
    (void)signal(interrupted, SIG_DFL);
    (void)raise(interrupted);
    return err_set(&m->ctx->err, ERR_ABORTED, "the build was cancelled");
}

static int follow(struct build_making *m, const char *id, json_t **ret_build)
{
    json_int_t after = 0;
    catch_signals();
    start_doing(m, NULL, NULL, 0);
    for (;;) {
        if (interrupted)
            return cancel(m, id);
        AUTO_FREE char *target = mem_printf("/cove/v1/builds/%s/log?after=%lld", id, (long long)after);
        AUTO_JSON json_t *answer = NULL;
        if (service_call(m->s, "GET", target, NULL, NULL, &answer) < 0)
            return -1;
        const json_t *build = json_object_get(answer, "build");
        template_build_print_lines(m, answer, &after);
        bool is_over =
            strcmp(service_text(build, "status"), "ready") == 0 || strcmp(service_text(build, "status"), "failed") == 0;
        if (is_over && json_array_size(json_object_get(answer, "lines")) == 0) {
            progress_end(&m->progress);
            *ret_build = json_deep_copy(build);
            return 0;
        }
        if (is_over)
            continue;
        show_step(m);
        (void)usleep(POLL_MS * 1000);
    }
}

static char *default_name(struct build_making *m)
{
    char path[PATH_TEXT_MAX];
    AUTO_FREE char *real = realpath(m->o->context, NULL);
    if (!real || path_clean(str_of(real), path) < 0)
        return NULL;
    struct str base = path_base(str_of(path));
    char *name = arena_strndup(&m->arena, base.p, MIN(base.n, (size_t)60));
    for (char *c = name; *c; c++) {
        const char low = str_lower(*c);
        *c = str_set_has("a-z0-9_", low) ? low : '-';
    }
    return *name ? name : NULL;
}

static int begin(struct build_making *m, json_t **ret_build)
{
    const struct template_build_options *o = m->o;
    const char *name = o->name ? o->name : default_name(m);
    AUTO_JSON json_t *body = json_object();
    json_t *tags = json_array();
    if (!name)
        return err_set(&m->ctx->err, ERR_INVALID_ARGUMENT, "the template needs a name: --name");
    (void)json_object_set_new(body, "name", json_string(name));
    for (size_t i = 0; i < o->n_tags; i++)
        (void)json_array_append_new(tags, json_string(o->tags[i]));
    (void)json_object_set_new(body, "tags", tags);
    if (o->cpu_milli)
        (void)json_object_set_new(body, "cpu_milli", json_integer((json_int_t)o->cpu_milli));
    if (o->memory_bytes)
        (void)json_object_set_new(body, "memory_bytes", json_integer((json_int_t)o->memory_bytes));
    (void)json_object_set(body, "spec", m->spec);
    return service_call(m->s, "POST", "/cove/v1/builds", body, "beginning the build", ret_build);
}

/* ---- stages that files are taken from ---- */

static void drop_stages(struct build_making *m)
{
    const struct err err = m->ctx->err;
    for (size_t i = 0; i < m->n_stages; i++) {
        AUTO_FREE char *id = TAKE_PTR(m->stages[i].template_id);
        AUTO_FREE char *target = id ? mem_printf("/cove/v1/templates?ref=%s", id) : NULL;
        if (target && service_call(m->s, "DELETE", target, NULL, NULL, NULL) < 0)
            template_build_say(m, arena_printf(&m->arena, "template %s of a stage stays: %s", id, m->ctx->err.msg));
    }
    m->n_stages = 0;
    m->ctx->err = err; /* what was said of the build counts */
}

static int build_stage(struct build_making *m, struct built_stage *b)
{
    const struct dockerfile_stage *stage = b->stage < 0 ? NULL : &m->file.stages[b->stage];
    AUTO_JSON json_t *spec = json_object(), *body = json_object(), *build = NULL, *end = NULL;
    char name[24] = "stage-";
    id_token(name + 6, 12);
    (void)json_object_set_new(spec, "force", json_boolean(m->o->no_cache));
    int r = set_from(m, spec, "from", stage ? stage->image : b->from);
    r = r ? r : add_steps(m, spec, stage ? stage->steps : NULL, stage ? stage->n_steps : 0);
    if (r == 0) {
        template_build_say(m, arena_printf(&m->arena, "stage %.200s", b->from));
        (void)json_object_set_new(body, "name", json_string(name));
        (void)json_object_set(body, "spec", spec);
        r = service_call(m->s, "POST", "/cove/v1/builds", body, "beginning the build of a stage", &build);
    }
    if (r == 0) {
        b->template_id = mem_strdup(service_text(build, "template"));
        r = follow(m, service_text(build, "id"), &end);
    }
    wipe_auth(spec);
    if (r < 0 || strcmp(service_text(end, "status"), "ready") == 0)
        return r;
    return err_set(&m->ctx->err, ERR_ABORTED, "stage %.64s: step %.16s: %s", b->from, service_text(end, "step"),
                   service_text(end, "reason"));
}

static struct built_stage *need_stage(struct build_making *m, const struct dockerfile_step *s)
{
    for (size_t i = 0; i < m->n_stages; i++)
        if (m->stages[i].stage == s->stage && (s->stage >= 0 || strcmp(m->stages[i].from, s->from) == 0))
            return &m->stages[i];
    if (m->n_stages == STAGES_MAX) {
        (void)err_set(&m->ctx->err, ERR_INVALID_ARGUMENT, "files of more than %d stages and images", STAGES_MAX);
        return NULL;
    }
    struct built_stage built = {s->from, s->stage, NULL};
    int r = build_stage(m, &built); /* those that it needs come before it */
    if (m->n_stages == STAGES_MAX)
        return NULL;
    m->stages[m->n_stages] = built;
    return r < 0 ? (m->n_stages++, NULL) : &m->stages[m->n_stages++];
}

static int template_build_remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int make_parents(char *path, size_t from)
{
    for (char *p = path + from; (p = strchr(p + 1, '/'));) {
        *p = 0;
        int r = mkdir(path, 0700);
        *p = '/';
        if (r < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}

/* Out of a sandbox of the stage, which a pattern's directory is taken from whole. */
static int template_build_fetch(struct build_making *m, const char *template_id, const char *source, const char *dir)
{
    AUTO_JSON json_t *spec = json_pack("{s:s,s:i}", "template", template_id, "timeout_ms", 3600 * 1000),
                     *sandbox = NULL;
    size_t plain = strcspn(source, "*?[");
    while (source[plain] && plain > 0 && source[plain - 1] != '/')
        plain--;
    AUTO_FREE char *from = mem_printf("/%.*s", (int)plain, source), *to = mem_printf("%s%s", dir, from);
    for (char *end = to + strlen(to); end > to + 1 && end[-1] == '/';)
        *--end = 0;
    int r = make_parents(to, strlen(dir));
    if (r < 0)
        return err_errno(&m->ctx->err, r, "make a directory for files of a stage");
    if (service_call(m->s, "POST", "/cove/v1/sandboxes", spec, "starting the stage", &sandbox) < 0)
        return -1;
    struct copy c = {.ctx = m->ctx, .service = m->s, .id = service_text(sandbox, "id"), .user = "root"};
    r = copy_from_sandbox(&c, from, to);
    const struct err err = m->ctx->err;
    if (service_remove(m->s, c.id, NULL) == 0 || r < 0)
        m->ctx->err = err;
    return r;
}

static int send_from_stage(struct build_making *m, const struct dockerfile_step *s,
                           char ret_hash[static CONTEXT_HASH_LEN + 1])
{
    const struct built_stage *b = need_stage(m, s);
    const char *tmp = getenv("TMPDIR");
    if (!b)
        return -1;
    AUTO_FREE char *dir = mem_printf("%s/cove-stage-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return err_errno(&m->ctx->err, errno, "make a directory for files of a stage");
    AUTO(build_context_close) struct local_context *context = NULL;
    int r = template_build_fetch(m, b->template_id, s->args[0], dir);
    r = r ? r : build_context_open(dir, &context, &m->ctx->err);
    r = r ? r : send_source(m, context, s->args[0], ret_hash);
    (void)nftw(dir, template_build_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return r;
}

static int template_build_failed(struct build_making *m)
{
    progress_end(&m->progress);
    return context_fail(m->ctx, STATUS_FAILED);
}

static int build(struct build_making *m)
{
    AUTO_JSON json_t *build = NULL, *end = NULL;
    if (read_password(m) < 0 || find_dockerfile(m, &m->ctx->err) < 0)
        return template_build_failed(m);
    m->s = service_open(m->ctx);
    if (!m->s || make_spec(m) < 0 || begin(m, &build) < 0 || follow(m, service_text(build, "id"), &end) < 0)
        return template_build_failed(m);
    bool ready = strcmp(service_text(end, "status"), "ready") == 0;
    if (m->ctx->json) {
        print_json(end);
    } else if (ready) {
        print_line(service_text(end, "template"));
    }
    if (ready)
        return STATUS_OK;
    const char *step = service_text(end, "step");
    (void)err_set(&m->ctx->err, ERR_ABORTED, "the build failed%s%s: %s", *step ? " at step " : "", step,
                  service_text(end, "reason"));
    if (strcmp(step, "base") == 0 && json_object_get(m->spec, "from"))
        context_hint(m->ctx, "FROM means a template here when one has that name ('cove template ls'), else an image");
    return template_build_failed(m);
}

int template_build_run(struct context *ctx, struct template_build_options *options)
{
    struct build_making m = {.ctx = ctx, .o = options};
    AUTO_JSON json_t *env = NULL;
    int status =
        net_flags_policy(ctx, &options->net, &env, &m.policy) < 0 ? context_fail(ctx, STATUS_USAGE) : build(&m);
    if (m.s)
        drop_stages(&m);
    forget_auth(&m);
    json_decref(m.spec);
    json_decref(m.policy);
    build_context_close(m.context);
    service_close(m.s);
    arena_fini(&m.arena);
    return status;
}

int template_build_aside(struct context *ctx, int (*make)(struct context *ctx, void *arg), void *arg)
{
    (void)fflush(stdout);
    const int out = dup(STDOUT_FILENO);
    const bool json = ctx->json;
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    ctx->json = false;
    int r = make(ctx, arg);
    ctx->json = json;
    (void)fflush(stdout);
    (void)dup2(out, STDOUT_FILENO);
    (void)close(out);
    return r;
}

int template_build_first(struct context *ctx, struct service *s, const char *name, bool may_be_snapshot,
                         int (*make)(struct context *ctx, void *arg), void *arg)
{
    AUTO_FREE char *target = service_path(ctx, "/cove/v1/templates?ref=", name, "");
    AUTO_JSON json_t *found = NULL;
    if (!target)
        return -1;
    if (service_call(s, "GET", target, NULL, NULL, &found) == 0) {
        const json_t *one = json_array_get(json_object_get(found, "templates"), 0);
        return may_be_snapshot || !json_is_true(json_object_get(one, "snapshot"))
                   ? 0
                   : err_set(&ctx->err, ERR_FAILED_PRECONDITION,
                             "the template %.60s is a snapshot, and not what was to be built: 'cove snapshot rm' "
                             "removes it",
                             name);
    }
    if (ctx->err.code != ERR_NOT_FOUND)
        return -1;
    ctx->err.code = ERR_OK;
    *ctx->hint = '\0';
    terminal_line(stderr, "cove %s: the template %s is built first, this once", ctx->command->name, name);
    return template_build_aside(ctx, make, arg);
}
