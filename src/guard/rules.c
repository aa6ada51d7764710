/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"
#include "guard/rules_internal.h"

/* ---- patterns ---- */

/* [abc], [a-z], [!abc], at the first byte behind '['. Returns where it ends, 0: it doesn't, so the bracket is
 * itself. */
static size_t glob_class(struct str p, size_t at, char c, bool *ret_fits)
{
    bool is_not = at < p.n && p.p[at] == '!', fits = false;
    size_t i = at + is_not, first = i;
    for (; i < p.n && (p.p[i] != ']' || i == first); i++) {
        if (i + 2 < p.n && p.p[i + 1] == '-' && p.p[i + 2] != ']') {
            fits |= c >= p.p[i] && c <= p.p[i + 2];
            i += 2;
        } else {
            fits |= c == p.p[i];
        }
    }
    *ret_fits = fits != is_not;
    return i < p.n ? i + 1 : 0;
}

/* How far the pattern goes that fits this one byte; 0: it doesn't. */
static size_t glob_one(struct str p, size_t at, char c)
{
    bool fits;
    if (p.p[at] == '?')
        return at + 1;
    if (p.p[at] == '[') {
        size_t end = glob_class(p, at + 1, c, &fits);
        if (end)
            return fits ? end : 0;
    }
    if (p.p[at] == '\\' && at + 1 < p.n)
        at++;
    return p.p[at] == c ? at + 1 : 0;
}

bool rules_glob(struct str p, struct str text)
{
    size_t at = 0, star = SIZE_MAX, from = 0, next;
    for (size_t i = 0; i < text.n;) {
        if (at < p.n && p.p[at] == '*') {
            star = ++at;
            from = i;
        } else if (at < p.n && (next = glob_one(p, at, text.p[i])) > 0) {
            at = next;
            i++;
        } else if (star != SIZE_MAX) {
            at = star;
            i = ++from;
        } else {
            return false;
        }
    }
    while (at < p.n && p.p[at] == '*')
        at++;
    return at == p.n;
}

/* The first byte says no, as it mostly does. */
static inline bool rules_differ(struct str p, struct str text)
{
    return p.n && *p.p != '*' && *p.p != '?' && *p.p != '[' && *p.p != '\\' && (!text.n || *text.p != *p.p);
}

static bool rules_any(const struct patterns *p, struct str text)
{
    for (size_t i = 0; i < p->n; i++)
        if (!rules_differ(p->all[i], text) && rules_glob(p->all[i], text))
            return true;
    return false;
}

/* ---- paths ---- */

/* What is left of a path below somebody's home; one that is not absolute is taken for one. */
static bool path_in_home(struct str path, struct str *ret_rest)
{
    if (!path.n || (path.p[0] == '/' && !str_starts(path, STR("/root")) && !str_starts(path, STR("/home/"))))
        return false;
    static const char *const homes[] = {"~", "$HOME", "${HOME}", "/root"};
    struct str rest = path;
    bool is_home = path.n && path.p[0] != '/' && path.p[0] != '~' && path.p[0] != '$';
    for (size_t i = 0; i < ARRAY_SIZE(homes); i++)
        if (str_starts(path, str_of(homes[i])) && (path.n == strlen(homes[i]) || path.p[strlen(homes[i])] == '/')) {
            rest = str_sub(path, strlen(homes[i]));
            is_home = true;
        }
    if (str_starts(path, STR("/home/"))) {
        ssize_t slash = str_find_char(str_sub(path, 6), '/');
        rest = slash < 0 ? STR("") : str_sub(path, (size_t)slash + 6);
        is_home = true;
    }
    *ret_rest = rest.n && rest.p[0] == '/' ? str_sub(rest, 1) : rest;
    return is_home;
}

/* A path that something is compared with. */
struct path_seen {
    struct str path, rest; /* rest: below somebody's home */
    bool in_home, has_slash;
};

static bool path_fits_whole(struct str pattern, struct str path)
{
    if (rules_differ(pattern, path))
        return false;
    /* "dir/ *" means the directory, too */
    bool is_dir = pattern.n > 2 && str_ends(pattern, STR("/*")) && rules_glob(str_n(pattern.p, pattern.n - 2), path);
    return is_dir || rules_glob(pattern, path);
}

static bool path_fits(struct str pattern, const struct path_seen *seen)
{
    if (pattern.p[0] == '~')
        return seen->in_home &&
               path_fits_whole(str_sub(pattern, pattern.n > 1 && pattern.p[1] == '/' ? 2 : 1), seen->rest);
    if (path_fits_whole(pattern, seen->path))
        return true;
    if (!seen->has_slash || pattern.p[0] == '/' || pattern.p[0] == '*')
        return false;
    for (size_t i = 0; i + 1 < seen->path.n; i++)
        if (seen->path.p[i] == '/' && path_fits_whole(pattern, str_sub(seen->path, i + 1)))
            return true;
    return false;
}

/* As it would be walked, as far as the text says: no "//", "/./", "/../". */
static struct str path_plain(struct arena *arena, struct str path)
{
    char *to = arena_alloc(arena, path.n + 1);
    size_t n = 0;
    struct str rest = path, part;
    bool is_absolute = path.n && path.p[0] == '/';
    while (str_split(&rest, '/', &part)) {
        if (!part.n || str_eqc(part, "."))
            continue;
        if (str_eqc(part, "..") && n) {
            while (n && to[n - 1] != '/')
                n--;
            n -= n > 0;
            continue;
        }
        if (n || is_absolute)
            to[n++] = '/';
        memcpy(to + n, part.p, part.n);
        n += part.n;
    }
    if (!n && path.n)
        to[n++] = is_absolute ? '/' : '.';
    return str_n(to, n);
}

static bool rules_path(const struct rules_rule *r, struct rules_action *a, struct str path)
{
    if (!path.n || path.n > PATH_TEXT_MAX)
        return false;
    struct str plain = memmem(path.p, path.n, "/.", 2) || memmem(path.p, path.n, "//", 2) ||
                               path.p[path.n - 1] == '/' || path.p[0] == '.'
                           ? path_plain(&a->arena, path)
                           : path;
    struct path_seen seen = {.path = plain, .has_slash = str_find_char(plain, '/') >= 0};
    seen.in_home = path_in_home(plain, &seen.rest);
    for (size_t i = 0; i < r->path.n; i++)
        if (path_fits(r->path.all[i], &seen))
            return true;
    return false;
}

/* ---- commands ---- */

/* Does the program write where this word says? */
static bool rules_writes(const struct shell_command *c, size_t i)
{
    struct str program = c->words[0];
    if (shell_is_one_of(program, "cp ln install rsync scp"))
        return i + 1 == c->n_words || str_starts(c->words[i], STR("--target-directory="));
    if (shell_is_one_of(program, "sed perl")) {
        for (size_t k = 1; k < c->n_words; k++)
            if (str_starts(c->words[k], STR("-i")) || str_starts(c->words[k], STR("--in-place")) ||
                str_starts(c->words[k], STR("-pi")))
                return true;
        return false;
    }
    if (str_eqc(program, "dd"))
        return str_starts(c->words[i], STR("of="));
    return shell_is_one_of(
        program, "tee mv rm unlink rmdir mkdir chmod chown truncate touch ed ex vi vim nano emacs shred patch sponge");
}

static bool command_has_path(const struct rules_rule *r, struct rules_action *a, const struct shell_command *c)
{
    for (size_t i = 0; i < c->n_writes; i++)
        if (rules_path(r, a, c->writes[i]))
            return true;
    for (size_t i = 1; i < c->n_words; i++) {
        struct str w = c->words[i];
        ssize_t eq = str_find_char(w, '=');
        bool is_option = w.n && w.p[0] == '-' && eq < 0 && str_find_char(w, '/') < 0;
        if (is_option || (r->writes && !rules_writes(c, i)))
            continue;
        if (rules_path(r, a, w) || (eq > 0 && rules_path(r, a, str_sub(w, (size_t)eq + 1))) ||
            (w.n > 1 && w.p[0] == '@' && rules_path(r, a, str_sub(w, 1))))
            return true;
    }
    return false;
}

/* Of "https://user@host:1/path" or "git@host:path". */
static bool command_has_host(const struct rules_rule *r, const struct shell_command *c)
{
    for (size_t i = 1; i < c->n_words; i++) {
        struct str w = c->words[i], host;
        const char *url = memmem(w.p, w.n, "://", 3), *at = w.n ? memchr(w.p, '@', w.n) : NULL;
        if (url)
            w = str_sub(w, (size_t)(url - w.p) + 3);
        else if (at)
            w = str_sub(w, (size_t)(at - w.p) + 1);
        for (size_t k = 0; k < w.n; k++)
            w.n = w.p[k] && strchr("/?#", w.p[k]) ? k : w.n;
        const char *user = w.n ? memrchr(w.p, '@', w.n) : NULL;
        host = user ? str_sub(w, (size_t)(user - w.p) + 1) : w;
        host.n = str_find_char(host, ':') >= 0 ? (size_t)str_find_char(host, ':') : host.n;
        char name[256] = "";
        size_t len = MIN(host.n, sizeof(name));
        for (size_t k = 0; k < len; k++)
            name[k] = host.p[k] >= 'A' && host.p[k] <= 'Z' ? (char)(host.p[k] | 0x20) : host.p[k];
        if ((url || at || memchr(name, '.', len)) && rules_any(&r->host, str_n(name, len)))
            return true;
    }
    return false;
}

static bool command_fits_argv(const struct rules_rule *r, const struct shell_command *c)
{
    if (r->n_argv && !rules_any(&r->argv[0], c->words[0]))
        return false;
    for (size_t k = 1; k < r->n_argv; k++) {
        bool has = false;
        for (size_t i = 1; !has && i < c->n_words; i++)
            has = rules_any(&r->argv[k], c->words[i]);
        if (!has)
            return false;
    }
    return true;
}

static bool command_feeds(const struct rules_rule *r, const struct shell_line *line, const struct shell_command *c)
{
    for (size_t i = 0; i < line->n; i++)
        if (rules_any(&r->feeds, line->all[i].words[0]) && shell_feeds(line, c, &line->all[i]))
            return true;
    return false;
}

/* What it writes, by -o FILE, > FILE or as its URL is called, is in a later command. */
static bool command_runs_output(const struct shell_line *line, const struct shell_command *c)
{
    for (const struct shell_command *later = c + 1; later < line->all + line->n; later++) {
        bool runs = shell_is_one_of(later->words[0], "sh bash dash zsh ksh source . chmod sudo env exec nohup") ||
                    str_starts(later->words[0], STR("python"));
        for (size_t i = 0; i < c->n_writes; i++)
            if (str_eq(shell_name(c->writes[i]), later->words[0]) ||
                (runs && later->n_words > 1 &&
                 str_eq(shell_name(c->writes[i]), shell_name(later->words[later->n_words - 1]))))
                return true;
        for (size_t i = 1; i < c->n_words; i++) {
            struct str name = shell_name(c->words[i]);
            if (name.n < 2 || name.p[0] == '-')
                continue;
            if (str_eq(name, later->words[0]) ||
                (runs && later->n_words > 1 && str_eq(name, shell_name(later->words[later->n_words - 1]))))
                return true;
        }
    }
    return false;
}

static bool command_fits(const struct rules_rule *r, struct rules_action *a, const struct shell_command *c)
{
    return command_fits_argv(r, c) && (!r->path.n || command_has_path(r, a, c)) &&
           (!r->host.n || command_has_host(r, c)) && (!r->feeds.n || command_feeds(r, a->line, c)) &&
           (!r->runs_output || command_runs_output(a->line, c));
}

/* ---- actions ---- */

static json_t *action_json(struct rules_action *a)
{
    if (!a->json && !(a->json = json_loadb(a->data.p, a->data.n, JSON_ALLOW_NUL, NULL)))
        a->json = json_object();
    return a->json;
}

static struct str action_text(struct rules_action *a, const char *name)
{
    const json_t *value = json_object_get(action_json(a), name);
    return json_str(value);
}

static void action_argv(struct rules_action *a)
{
    if (a->argv)
        return;
    const json_t *args = json_object_get(action_json(a), "args");
    struct str *argv = arena_alloc(&a->arena, (json_array_size(args) + 1) * sizeof(*argv));
    argv[0] = action_text(a, "cmd");
    JSON_FOREACH_AT (i, one, args)
        argv[i + 1] = json_str(one);
    a->argv = argv;
    a->n_argv = json_array_size(args) + 1;
}

static const struct shell_line *action_line(struct rules_action *a)
{
    if (!a->line) {
        bool is_whole = a->argv;
        action_argv(a);
        a->line = arena_alloc(&a->arena, sizeof(*a->line));
        shell_read(a->line, &a->arena, a->argv, a->n_argv);
        a->line->is_unreadable |= !is_whole && json_is_true(json_object_get(action_json(a), "args_cut"));
    }
    return a->line;
}

static uint64_t action_bytes(struct rules_action *a)
{
    static const char *const names[] = {"bytes", "limit_bytes", "memory_bytes"};
    uint64_t n = 0;
    if (a->kind == EVENT_EXEC_START) {
        action_argv(a);
        for (size_t i = 0; i < a->n_argv; i++)
            n += a->argv[i].n;
        return n;
    }
    for (size_t i = 0; n == 0 && i < ARRAY_SIZE(names); i++)
        n = (uint64_t)json_integer_value(json_object_get(action_json(a), names[i]));
    return n;
}

/* A policy that would allow this host. */
static bool policy_has_host(const struct rules_rule *r, struct rules_action *a)
{
    static const char *const members[] = {"rules", "inject"};
    for (size_t k = 0; k < ARRAY_SIZE(members); k++)
        JSON_FOREACH (one, json_object_get(action_json(a), members[k])) {
            const char *host = json_string_value(json_object_get(one, k ? "host" : "allow"));
            if (host && rules_any(&r->host, str_of(host)))
                return true;
        }
    return false;
}

static bool rules_fits_command(const struct rules_rule *r, struct rules_action *a)
{
    if (r->command.n) {
        action_argv(a);
        if (r->command.n != a->n_argv)
            return false;
        for (size_t i = 0; i < a->n_argv; i++)
            if (!str_eq(r->command.all[i], a->argv[i]))
                return false;
    }
    if (!r->wants_line)
        return true;
    const struct shell_line *line = action_line(a);
    if (r->is_unreadable && !line->is_unreadable)
        return false;
    if (!r->n_argv && !r->path.n && !r->host.n)
        return true;
    for (size_t i = 0; i < line->n; i++)
        if (command_fits(r, a, &line->all[i]))
            return true;
    return false;
}

/* It had no room for all of it, as of text that grows when it is escaped: the rest may be what a rule is about. */
static bool action_is_cut(struct rules_action *a)
{
    static const char *const marks[] = {"truncated", "path_bytes", "destination_bytes"};
    for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
        if (json_object_get(action_json(a), marks[i]))
            return true;
    return false;
}

static bool rules_fits_other(const struct rules_rule *r, struct rules_action *a)
{
    bool is_write = a->kind == EVENT_FILE_WRITE || a->kind == EVENT_FILE_MKDIR || a->kind == EVENT_FILE_MOVE ||
                    a->kind == EVENT_FILE_REMOVE || a->kind == EVENT_FILE_UNPACK;
    if ((r->path.n || r->host.n) && !(r->writes && !is_write) && action_is_cut(a))
        return r->verdict != GUARD_ALLOW || r->risk > RISK_LOW; /* for one that restricts */
    if (r->path.n && ((r->writes && !is_write) ||
                      (!rules_path(r, a, action_text(a, "path")) && !rules_path(r, a, action_text(a, "destination")))))
        return false;
    if (r->host.n && !policy_has_host(r, a))
        return false;
    return !r->port || r->port == (uint64_t)json_integer_value(json_object_get(action_json(a), "port"));
}

static bool rules_fits(const struct rules_rule *r, struct rules_action *a)
{
    if (!r->kinds[a->kind] || (r->actor.n && !rules_any(&r->actor, a->actor)) ||
        (r->sandbox.n && !str_eq(r->sandbox, a->id)) || (r->min_bytes && action_bytes(a) < r->min_bytes))
        return false;
    return a->kind == EVENT_EXEC_START ? rules_fits_command(r, a) : rules_fits_other(r, a);
}

static void answer_by(struct rules_answer *answer, const struct rules_rule *r)
{
    (void)snprintf(answer->rule, sizeof(answer->rule), "%s%s", r->rail ? "rail " : "", r->rail ? r->rail : r->name);
    answer->verdict = r->verdict;
    answer->reason = r->reason;
}

bool rules_is_unreadable(struct rules_action *a)
{
    return a->kind == EVENT_EXEC_START && action_line(a)->is_unreadable;
}

void rules_judge(const struct rules *r, struct rules_action *a, struct rules_answer *ret_answer)
{
    struct rules_answer answer = {.rule = "otherwise", .verdict = r->otherwise};
    bool has_rail = false;
    for (size_t i = 0; i < r->n; i++) {
        const struct rules_rule *rule = &r->all[i];
        if (!rules_fits(rule, a))
            continue;
        answer.risk = MAX(answer.risk, rule->risk);
        if (rule->has_verdict) {
            answer_by(&answer, rule);
            *ret_answer = answer;
            return;
        }
        if (rule->rail && (!has_rail || rule->verdict > answer.verdict)) {
            has_rail = true;
            answer_by(&answer, rule);
        }
    }
    if (r->rates && answer.risk == RISK_LOW && rules_is_unreadable(a))
        answer.risk = RISK_UNKNOWN;
    if (r->by_risk[answer.risk] > answer.verdict) {
        (void)snprintf(answer.rule, sizeof(answer.rule), "risk %s", guard_risk_name(answer.risk));
        answer.verdict = r->by_risk[answer.risk];
    }
    answer.is_analysed = answer.verdict == GUARD_ALLOW && r->analyser.url && r->analyses[a->kind];
    *ret_answer = answer;
}

void rules_action_fini(struct rules_action *a)
{
    arena_fini(&a->arena);
    json_decref(a->json);
}
