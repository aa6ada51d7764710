/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/shell.h"
#include "base/buf.h"

enum { HEREDOCS_MAX = 8 };

struct words {
    struct str all[SHELL_WORDS_MAX];
    bool unknown[SHELL_WORDS_MAX]; /* something in it can't be known */
    size_t n;
};

/* What $0, $1, $@ of one shell are. */
struct shell_params {
    const struct str *all;
    const bool *unknown;
    size_t n;
    bool is_open;                     /* there may be more */
    bool is_used, has_loop, is_moved; /* is_moved: by shift, set or a function, so they can't be known any more */
};

/* What is being read: a text, and the command in it that is not complete yet. */
struct shell_reader {
    struct shell_line *line;
    struct arena *arena;
    struct str text;
    size_t at;
    unsigned depth, group;
    struct words *words;
    struct shell_params *params;
    struct str writes[16];
    size_t n_writes;
    struct str heredocs[HEREDOCS_MAX]; /* delimiters whose bodies come behind this line's end */
    size_t n_heredocs;
    bool is_dynamic;   /* the program's name can't be known */
    bool is_unknown;   /* something in the word that is read can't be known */
    bool has_vanished; /* the last expansion makes no word */
    bool is_fed;       /* by xargs: more words come behind those that are known */
    char until;        /* ')' or '`' ends it; 0: the text's end does */
};

static void shell_words(struct shell_reader *r, const struct str *words, size_t n, unsigned depth);
static void shell_text(struct shell_reader *r, struct str text, unsigned depth, struct shell_params *params);

struct str shell_name(struct str path)
{
    const char *slash = path.n ? memrchr(path.p, '/', path.n) : NULL;
    return slash ? str_sub(path, (size_t)(slash - path.p) + 1) : path;
}

bool shell_is_one_of(struct str word, const char *list)
{
    struct str rest = str_of(list), one;
    while (str_split(&rest, ' ', &one))
        if (str_eq(one, word))
            return true;
    return false;
}

static unsigned group_new(struct shell_line *line, unsigned into)
{
    if (line->n_groups == SHELL_COMMANDS_MAX) {
        line->is_unreadable = true;
        return SHELL_COMMANDS_MAX;
    }
    line->feeds[++line->n_groups] = into;
    return line->n_groups;
}

bool shell_feeds(const struct shell_line *line, const struct shell_command *from, const struct shell_command *to)
{
    unsigned g = line->feeds[from->group];
    for (unsigned i = 0; g && i <= line->n_groups; i++, g = line->feeds[g])
        if (g == to->group)
            return true;
    return false;
}

/* ---- programs that run another one ---- */

static const char shells[] = "sh bash dash zsh ksh ash mksh rbash fish";

/* letters: options whose value may be the next word; skip: operands before the other command. */
static const struct {
    const char *names, *letters;
    unsigned skip;
    bool takes_variables;
} runners[] = {
    {"sudo doas", "ughpCrtTUDR", 0, true},
    {"env", "uCS", 0, true},
    {"xargs", "IndPLsEa", 0, false},
    {"timeout", "sk", 1, false},
    {"nice", "n", 0, false},
    {"ionice", "cnp", 0, false},
    {"stdbuf", "ioe", 0, false},
    {"exec", "a", 0, false},
    {"time", "fo", 0, false},
    {"watch", "n", 0, false},
    {"chroot", "", 1, false},
    {"flock", "wE", 1, false},
    {"taskset chrt", "", 1, false},
    {"runuser", "ugG", 0, false},
    {"nohup setsid command builtin busybox toybox unshare setpriv strace parallel unbuffer catchsegv", "", 0, false},
};

static bool is_assignment(struct str w)
{
    ssize_t eq = str_find_char(w, '=');
    return eq > 0 && str_span_variable(w) == (size_t)eq;
}

/* Joined with blanks, as `eval` and `env -S` do. */
static struct str shell_join(struct shell_reader *r, const struct str *w, size_t n)
{
    AUTO_BUF struct buf b = BUF_INIT(SHELL_TEXT_MAX);
    for (size_t i = 0; i < n; i++) {
        (void)buf_append_str(&b, w[i]);
        (void)buf_append_char(&b, ' ');
    }
    r->line->is_unreadable |= buf_error(&b) < 0;
    return arena_str(r->arena, buf_str(&b));
}

/* Words are the same text wherever they are handed to. */
static bool shell_is_unknown(const struct shell_reader *r, struct str word)
{
    for (size_t i = 0; r->words && i < r->words->n; i++)
        if (r->words->all[i].p == word.p && r->words->unknown[i])
            return true;
    return false;
}

static struct shell_params *shell_params_new(struct shell_reader *r, const struct str *all, size_t n, bool is_open)
{
    struct shell_params *p = arena_alloc(r->arena, sizeof(*p));
    bool *unknown = arena_alloc(r->arena, n + 1);
    for (size_t i = 0; i < n; i++)
        unknown[i] = shell_is_unknown(r, all[i]);
    *p = (struct shell_params){.all = all, .unknown = unknown, .n = n, .is_open = is_open};
    return p;
}

/* A text that another program's words are; what can't be known of these may be any commands. */
static void shell_of_words(struct shell_reader *r, const struct str *w, size_t n, unsigned depth,
                           struct shell_params *params)
{
    for (size_t i = 0; i < n; i++)
        r->line->is_unreadable |= shell_is_unknown(r, w[i]);
    shell_text(r, n == 1 ? *w : shell_join(r, w, n), depth, params);
}

/* bash -l -c TEXT, bash -lc TEXT, bash -o pipefail -c TEXT, each with NAME ARGUMENT... */
static void shell_of_shell(struct shell_reader *r, const struct str *w, size_t n, unsigned depth)
{
    bool has_text = false;
    size_t i = 1;
    for (; i < n && w[i].n > 1 && (w[i].p[0] == '-' || w[i].p[0] == '+'); i++) {
        bool is_long = w[i].p[1] == '-';
        has_text |= !is_long && str_find_char(w[i], 'c') > 0;
        i += (is_long && shell_is_one_of(w[i], "--rcfile --init-file")) || (!is_long && str_ends(w[i], STR("o")));
        if (str_eqc(w[MIN(i, n - 1)], "--")) {
            i++;
            break;
        }
    }
    if (has_text && i < n)
        shell_of_words(r, w + i, 1, depth + 1, shell_params_new(r, w + i + 1, n - i - 1, r->is_fed));
}

static void shell_of_runner(struct shell_reader *r, const struct str *w, size_t n, size_t which, unsigned depth)
{
    bool is_doubtful = false;
    size_t i = 1;
    for (; i < n; i++) {
        if (str_eqc(w[i], "--")) {
            i++;
            break;
        }
        if (w[i].n > 1 && w[i].p[0] == '-') {
            bool is_split = which == 1 && (str_starts(w[i], STR("-S")) || str_starts(w[i], STR("--split-string")));
            ssize_t eq = str_find_char(w[i], '=');
            r->line->is_unreadable |= is_split && shell_is_unknown(r, w[i]);
            if (is_split && (eq > 0 || (w[i].n > 2 && w[i].p[1] == 'S')))
                shell_text(r, str_sub(w[i], eq > 0 ? (size_t)eq + 1 : 2), depth + 1, NULL);
            else if (is_split)
                shell_of_words(r, w + i + 1, n - i - 1, depth + 1, NULL);
            is_doubtful |=
                w[i].p[1] == '-' && eq < 0 && !str_eqc(w[i], "--clear-groups"); /* setpriv's, without value */
            /* An option of one letter, or the last one of a cluster, whose value is the next word. */
            i += w[i].p[1] != '-' && *runners[which].letters && strchr(runners[which].letters, w[i].p[w[i].n - 1]);
        } else if (!runners[which].takes_variables || !is_assignment(w[i])) {
            break;
        }
    }
    i += runners[which].skip;
    bool was_fed = r->is_fed;
    r->is_fed |= str_eqc(w[0], "xargs") || str_eqc(w[0], "parallel");
    for (size_t k = i; k < n && k <= i + is_doubtful; k++)
        shell_words(r, w + k, n - k, depth + 1);
    r->is_fed = was_fed;
}

static void shell_of_find(struct shell_reader *r, const struct str *w, size_t n, unsigned depth)
{
    for (size_t i = 1; i < n; i++) {
        size_t end = i + 1;
        if (!shell_is_one_of(w[i], "-exec -execdir -ok -okdir"))
            continue;
        while (end < n && !str_eqc(w[end], ";") && !str_eqc(w[end], "+"))
            end++;
        shell_words(r, w + i + 1, end - i - 1, depth + 1);
        i = end;
    }
}

static void shell_look_through(struct shell_reader *r, const struct str *w, size_t n, unsigned depth)
{
    if (shell_is_one_of(w[0], shells)) {
        shell_of_shell(r, w, n, depth);
    } else if (str_eqc(w[0], "eval")) {
        shell_of_words(r, w + 1, n - 1, depth + 1, r->params);
    } else if (str_eqc(w[0], "find")) {
        shell_of_find(r, w, n, depth);
    } else if (shell_is_one_of(w[0], "su script runuser flock")) {
        for (size_t i = 1; i + 1 < n; i++)
            if (shell_is_one_of(w[i], "-c --command -lc"))
                shell_of_words(r, w + i + 1, 1, depth + 1, NULL);
    }
    for (size_t i = 0; i < ARRAY_SIZE(runners); i++)
        if (shell_is_one_of(w[0], runners[i].names))
            shell_of_runner(r, w, n, i, depth);
    /* Code of another language, which is not read here. */
    if (n > 1 &&
        (str_starts(w[0], STR("python")) || shell_is_one_of(w[0], "perl ruby node php lua Rscript awk gawk deno bun")))
        for (size_t i = 1; i < n; i++)
            r->line->is_unreadable |= shell_is_one_of(w[i], "-c -e -E -r -p --eval -");
}

/* Later commands of this shell see other parameters; in a loop earlier ones do, too. */
static void shell_move_params(struct shell_reader *r)
{
    struct shell_params *p = r->params;
    p->is_moved = true;
    r->line->is_unreadable |= p->is_used && p->has_loop;
}

static void shell_see_params(struct shell_reader *r, const struct str *w, size_t n)
{
    bool moves = shell_is_one_of(w[0], "shift function");
    for (size_t i = 0; i < n; i++)
        moves |= str_starts(w[i], STR("IFS=")) || (str_eqc(w[0], "set") && i && w[i].n && w[i].p[0] != '+' &&
                                                   (w[i].p[0] != '-' || w[i].n == 1 || w[i].p[1] == '-'));
    r->params->has_loop |= shell_is_one_of(w[0], "for select while until do");
    if (moves)
        shell_move_params(r);
}

/* A whole command, of this reader's group. */
static void shell_words(struct shell_reader *r, const struct str *words, size_t n, unsigned depth)
{
    struct shell_line *line = r->line;
    for (; n; words++, n--) {
        shell_see_params(r, words, n);
        if (!is_assignment(*words) &&
            !shell_is_one_of(*words, "if then elif else while until do time ! { } fi done esac"))
            break;
    }
    if (!n || !words->n)
        return;
    line->is_unreadable |= str_find_char(*words, '$') >= 0 || str_eqc(*words, "{}");
    line->n_words += n;
    if (line->n == SHELL_COMMANDS_MAX || depth > SHELL_DEPTH_MAX || line->n_words > SHELL_WORDS_ALL) {
        line->is_unreadable = true;
        return;
    }
    struct str *copy = arena_alloc(r->arena, n * sizeof(*copy));
    struct str *writes = arena_alloc(r->arena, (r->n_writes + 1) * sizeof(*writes));
    memcpy(copy, words, n * sizeof(*copy));
    memcpy(writes, r->writes, r->n_writes * sizeof(*writes));
    if (shell_name(copy[0]).n)
        copy[0] = shell_name(copy[0]);
    line->all[line->n++] = (struct shell_command){copy, n, writes, r->n_writes, r->group};
    shell_look_through(r, copy, n, depth);
}

/* ---- the shell's language ---- */

static bool shell_is_end(const struct shell_reader *r)
{
    return r->at >= r->text.n;
}

static char shell_peek(const struct shell_reader *r, size_t ahead)
{
    return r->at + ahead < r->text.n ? r->text.p[r->at + ahead] : 0;
}

static void shell_finish(struct shell_reader *r)
{
    if (r->words->n) {
        r->line->is_unreadable |= r->is_dynamic;
        shell_words(r, r->words->all, r->words->n, r->depth);
    }
    r->words->n = r->n_writes = 0;
    r->is_dynamic = false;
}

static void shell_push(struct shell_reader *r, struct str word)
{
    struct words *w = r->words;
    if (w->n < SHELL_WORDS_MAX) {
        w->unknown[w->n] = r->is_unknown;
        w->all[w->n++] = word;
    }
    r->line->is_unreadable |= w->n == SHELL_WORDS_MAX;
}

/* What stands here can't be known. */
static void shell_doubt(struct shell_reader *r)
{
    r->is_dynamic |= !r->words->n;
    r->is_unknown = true;
}

static size_t shell_commands(struct shell_reader *outer, struct str text, unsigned depth, unsigned into, char until,
                             struct shell_params *params);

/* At the first byte behind what opens it: what is inside goes into this command's words. */
static void shell_inside(struct shell_reader *r, char until)
{
    r->at += shell_commands(r, str_sub(r->text, r->at), r->depth + 1, r->group, until, r->params);
}

/* The word so far is one; another begins. */
static void shell_push_part(struct shell_reader *r, struct buf *word)
{
    r->line->is_unreadable |= buf_error(word) < 0;
    shell_push(r, arena_str(r->arena, buf_str(word)));
    buf_clear(word);
}

static void shell_escape(struct shell_reader *r, struct buf *word)
{
    static const char plain[] = "abefnrtv", means[] = "\a\b\033\f\n\r\t\v";
    char c = shell_peek(r, 0);
    const char *known = c ? strchr(plain, c) : NULL;
    unsigned value = 0, digits = 0, base = c == 'x' ? 16 : 8;
    r->at += c != 0;
    if (known) {
        (void)buf_append_char(word, means[known - plain]);
        return;
    }
    r->at -= base == 8 && c >= '0' && c <= '7';
    for (; digits < (base == 16 ? 2 : 3); digits++) {
        char d = shell_peek(r, 0) | 0x20;
        unsigned v = d >= '0' && d <= '9' ? (unsigned)(d - '0') : d >= 'a' && d <= 'f' ? (unsigned)(d - 'a') + 10 : 99;
        if (v >= base || (c != 'x' && !(c >= '0' && c <= '7')))
            break;
        value = value * base + v;
        r->at++;
    }
    r->line->is_unreadable |= c == 'u' || c == 'U';
    (void)buf_append_char(word, digits ? (char)value : c);
}

/* Unquoted it is split at blanks. */
static void shell_value(struct shell_reader *r, struct buf *word, struct str value, bool is_quoted)
{
    if (r->line->n_expanded + value.n >= SHELL_EXPANDED_MAX) {
        r->line->is_unreadable = true;
        return;
    }
    r->line->n_expanded += value.n + 1;
    for (size_t i = 0; i < value.n; i++) {
        char c = value.p[i];
        bool is_blank = !is_quoted && (c == ' ' || c == '\t' || c == '\n');
        r->is_dynamic |= !is_quoted && !r->words->n && (c == '*' || c == '?' || c == '[');
        if (!is_blank)
            (void)buf_append_char(word, c);
        else if (buf_len(word))
            shell_push_part(r, word);
    }
}

/* $1, ${12}, $@, $*: words behind `sh -c TEXT`. False: it isn't one of these, or can't be known. */
static bool shell_parameter(struct shell_reader *r, struct buf *word, struct str name, bool is_quoted)
{
    struct shell_params *p = r->params;
    if (name.n > 2 && name.p[0] == '{' && name.p[name.n - 1] == '}')
        name = str_n(name.p + 1, name.n - 2);
    bool is_all = str_eqc(name, "@") || str_eqc(name, "*"), is_apart = is_all && (!is_quoted || name.p[0] == '@');
    size_t first = 0, end;
    for (size_t i = 0; i < name.n && !is_all; i++) {
        if (name.p[i] < '0' || name.p[i] > '9' || first > SHELL_WORDS_MAX)
            return false;
        first = first * 10 + (size_t)(name.p[i] - '0');
    }
    end = is_all ? p->n : MIN(first + 1, p->n);
    first += is_all;
    if (!name.n)
        return false;
    p->is_used = true;
    if (p->is_moved || (first >= p->n && (p->is_open || !first)))
        return false;
    for (size_t i = first; i < end; i++) {
        if (i > first && is_apart && (is_quoted || buf_len(word)))
            shell_push_part(r, word);
        else if (i > first && !is_apart)
            (void)buf_append_char(word, ' ');
        if (p->unknown[i])
            shell_doubt(r);
        shell_value(r, word, p->all[i], is_quoted);
    }
    if (is_all && p->is_open) {
        if (is_apart && buf_len(word))
            shell_push_part(r, word);
        shell_doubt(r);
        (void)buf_append_cstr(word, "$@");
    }
    r->has_vanished = !buf_len(word) && (!is_quoted || (is_apart && first >= end));
    return true;
}

/* Behind a '$'. What is no substitution stays in the word as it is written. true: a blank, where it stands. */
static bool shell_dollar(struct shell_reader *r, struct buf *word, bool is_quoted)
{
    char c = shell_peek(r, 0);
    size_t from = r->at;
    if (c == '(' && shell_peek(r, 1) == '(') { /* arithmetic runs only what is substituted in it */
        shell_doubt(r);
        (void)buf_append_cstr(word, "$");
        return false;
    }
    if (c == '(') {
        r->at++;
        shell_inside(r, ')');
        shell_doubt(r);
        (void)buf_append_cstr(word, "$()");
        return false;
    }
    if (c == '\'' && !is_quoted) {
        for (r->at++; !shell_is_end(r) && shell_peek(r, 0) != '\''; r->at++) {
            if (shell_peek(r, 0) != '\\') {
                (void)buf_append_char(word, shell_peek(r, 0));
                continue;
            }
            r->at++;
            shell_escape(r, word);
            r->at--;
        }
        r->at++;
        return false;
    }
    if (c == '"' && !is_quoted)
        return false;
    if (c == '{') {
        const char *end = memchr(r->text.p + r->at, '}', r->text.n - r->at);
        r->at = end ? (size_t)(end - r->text.p) + 1 : r->text.n;
    } else if (c && strchr("@*#?$!-0123456789", c)) {
        r->at++;
    } else {
        while (shell_peek(r, 0) == '_' || (shell_peek(r, 0) >= '0' && shell_peek(r, 0) <= '9') ||
               ((shell_peek(r, 0) | 0x20) >= 'a' && (shell_peek(r, 0) | 0x20) <= 'z'))
            r->at++;
    }
    struct str name = str_n(r->text.p + from, r->at - from);
    if (!is_quoted && (str_eqc(name, "IFS") || str_starts(name, STR("{IFS"))))
        return true;
    if (shell_parameter(r, word, name, is_quoted))
        return false;
    bool is_home = str_eqc(name, "HOME") || str_eqc(name, "{HOME}");
    if (name.n && !is_home)
        shell_doubt(r);
    (void)buf_append_cstr(word, is_home ? "~" : "$");
    if (!is_home)
        (void)buf_append_str(word, name);
    return false;
}

static void shell_double_quoted(struct shell_reader *r, struct buf *word)
{
    while (!shell_is_end(r) && shell_peek(r, 0) != '"') {
        char c = r->text.p[r->at++];
        if (c == '\\' && strchr("$`\"\\\n", shell_peek(r, 0)) && !shell_is_end(r)) {
            if (shell_peek(r, 0) != '\n')
                (void)buf_append_char(word, shell_peek(r, 0));
            r->at++;
        } else if (c == '$') {
            (void)shell_dollar(r, word, true);
        } else if (c == '`') {
            shell_inside(r, '`');
            shell_doubt(r);
            (void)buf_append_cstr(word, "$()");
        } else {
            (void)buf_append_char(word, c);
        }
    }
    r->line->is_unreadable |= shell_is_end(r);
    r->at++;
}

/* Behind a '[': of the program of that name, or of "[[". */
static bool shell_is_test(const struct shell_reader *r)
{
    char c = shell_peek(r, shell_peek(r, 0) == '[');
    return c == ' ' || c == '\t' || c == '\n';
}

/* One word, or nothing. False: there is none here. */
static bool shell_word(struct shell_reader *r, struct str *ret_word)
{
    AUTO_BUF struct buf word = BUF_INIT(SHELL_TEXT_MAX);
    bool is_word = false;
    r->is_unknown = false;
    for (char c; !shell_is_end(r); is_word |= !r->has_vanished || buf_len(&word)) {
        c = shell_peek(r, 0);
        r->has_vanished = false;
        if (strchr(" \t\r\n;&|()<>", c) && c)
            break;
        if (c == '`' && r->until == '`')
            break;
        r->at++;
        if (c == '\\') {
            if (shell_peek(r, 0) != '\n' && !shell_is_end(r))
                (void)buf_append_char(&word, shell_peek(r, 0));
            r->at++;
        } else if (c == '\'') {
            const char *end = memchr(r->text.p + r->at, '\'', r->text.n - r->at);
            size_t n = end ? (size_t)(end - r->text.p) - r->at : r->text.n - r->at;
            (void)buf_append(&word, r->text.p + r->at, n);
            r->line->is_unreadable |= !end;
            r->at += n + 1;
        } else if (c == '"') {
            shell_double_quoted(r, &word);
        } else if (c == '$') {
            if (shell_dollar(r, &word, false))
                break;
        } else if (c == '`') {
            shell_inside(r, '`');
            shell_doubt(r);
            (void)buf_append_cstr(&word, "$()");
        } else {
            r->is_dynamic |= !r->words->n && (c == '*' || c == '?' || (c == '[' && !shell_is_test(r)) ||
                                              (c == '{' && shell_peek(r, 0) != ' ' && shell_peek(r, 0) != '\n'));
            (void)buf_append_char(&word, c);
        }
    }
    if (buf_error(&word) < 0)
        r->line->is_unreadable = true;
    *ret_word = arena_str(r->arena, buf_str(&word));
    return is_word && (buf_len(&word) || r->words->n);
}

static void shell_redirect(struct shell_reader *r, char c)
{
    struct words *w = r->words;
    struct str target;
    size_t n = r->at;
    /* "2>" */
    if (w->n && n >= 2 && r->text.p[n - 2] >= '0' && r->text.p[n - 2] <= '9' && w->all[w->n - 1].n == 1 &&
        w->all[w->n - 1].p[0] == r->text.p[n - 2])
        w->n--;
    char next = shell_peek(r, 0);
    if (next == '(') { /* a process behind a file */
        r->at++;
        shell_inside(r, ')');
        return;
    }
    bool is_here = c == '<' && next == '<' && shell_peek(r, 1) != '<', is_string = c == '<' && next == '<' && !is_here;
    r->at += is_string ? 2 : is_here || next == '>' || next == '|' || next == '&' ? 1 : 0;
    r->at += is_here && shell_peek(r, 0) == '-';
    while (shell_peek(r, 0) == ' ' || shell_peek(r, 0) == '\t')
        r->at++;
    bool was_dynamic = r->is_dynamic;
    if (!shell_word(r, &target) && !target.n)
        return;
    r->is_dynamic = was_dynamic;
    if (is_here && r->n_heredocs < HEREDOCS_MAX)
        r->heredocs[r->n_heredocs++] = target;
    else if (is_here)
        r->line->is_unreadable = true;
    else if (is_string && w->n && shell_is_one_of(shell_name(w->all[0]), shells))
        shell_of_words(r, &target, 1, r->depth + 1, NULL);
    else if (c == '>' && !(next == '&' && target.p[0] >= '0' && target.p[0] <= '9') &&
             r->n_writes < ARRAY_SIZE(r->writes))
        r->writes[r->n_writes++] = target;
    else if (c == '<' && w->n < SHELL_WORDS_MAX && w->n)
        w->all[w->n++] = target;
}

/* Behind the line's end: bodies are a shell's text, or data. */
static void shell_heredocs(struct shell_reader *r, bool is_shell)
{
    for (size_t i = 0; i < r->n_heredocs; i++) {
        size_t from = r->at, end = r->text.n;
        struct str rest = str_sub(r->text, r->at), one;
        r->at = r->text.n;
        for (size_t at = from; str_split(&rest, '\n', &one); at += one.n + 1) {
            while (one.n && one.p[0] == '\t' && str_eq(str_trim(one), r->heredocs[i]))
                one = str_sub(one, 1), at++;
            if (!str_eq(one, r->heredocs[i]))
                continue;
            end = at;
            r->at = MIN(at + one.n + 1, r->text.n);
            break;
        }
        if (is_shell)
            shell_text(r, str_n(r->text.p + from, end - from), r->depth + 1, NULL);
    }
    r->n_heredocs = 0;
}

static void shell_newline(struct shell_reader *r)
{
    bool is_shell = false;
    if (r->n_heredocs) {
        shell_finish(r);
        for (size_t i = 0; i < r->line->n; i++)
            is_shell |= shell_is_one_of(r->line->all[i].words[0], shells) && r->line->all[i].n_words < 3;
        shell_heredocs(r, is_shell);
    }
}

/* Ends a command; what a pipe follows feeds what comes behind it. first: the first group of this text. */
static void shell_operator(struct shell_reader *r, char c, unsigned into, unsigned first)
{
    bool is_pipe = c == '|' && shell_peek(r, 0) != '|',
         was_command = r->words->n && !shell_is_one_of(r->words->all[0], "} fi done esac");
    unsigned last = r->group;
    shell_finish(r);
    r->at += (shell_peek(r, 0) == c && strchr(";&|", c)) || (c == '|' && shell_peek(r, 0) == '&');
    r->group = group_new(r->line, into);
    /* "(a; b) | c": of a compound command each feeds what follows. */
    for (unsigned g = was_command ? last : first; is_pipe && g < r->group; g++)
        if (r->line->feeds[g] == into)
            r->line->feeds[g] = r->group;
    if (c == '\n')
        shell_newline(r);
}

/* Commands up to `until`; returns how many bytes these are, with it. */
static size_t shell_commands(struct shell_reader *outer, struct str text, unsigned depth, unsigned into, char until,
                             struct shell_params *params)
{
    struct shell_line *line = outer->line;
    if (depth > SHELL_DEPTH_MAX || line->text > SHELL_TEXT_MAX || line->n_groups == SHELL_COMMANDS_MAX) {
        line->is_unreadable = true;
        return text.n;
    }
    struct shell_reader r = {
        .line = line, .arena = outer->arena, .text = text, .depth = depth, .until = until, .params = params};
    unsigned first = r.group = group_new(line, into), parens = 0;
    struct str word;
    r.words = arena_alloc(r.arena, sizeof(*r.words));
    r.words->n = 0;
    while (!shell_is_end(&r) && line->n_groups < SHELL_COMMANDS_MAX) {
        char c = shell_peek(&r, 0);
        size_t before = r.at;
        if (c == until && (c != ')' || parens == 0) && until)
            break;
        if (c == '#') {
            while (!shell_is_end(&r) && shell_peek(&r, 0) != '\n')
                r.at++;
        } else if (c && strchr(" \t\r", c)) {
            r.at++;
        } else if (c == '<' || c == '>') {
            r.at++;
            shell_redirect(&r, c);
        } else if (c && strchr("\n;&|()", c)) {
            if (c == '(' && r.words->n) /* the body of a function has parameters of its own */
                shell_move_params(&r);
            parens += c == '(';
            parens -= c == ')' && parens;
            r.at++;
            if (c == '&' && shell_peek(&r, 0) == '>') /* "&> file" */
                continue;
            shell_operator(&r, c, into, first);
        } else if (shell_word(&r, &word)) {
            shell_push(&r, word);
        }
        r.at += r.at == before; /* never stands still */
    }
    shell_finish(&r);
    line->is_unreadable |= shell_is_end(&r) ? until != 0 : r.text.p[r.at] != until;
    line->text += r.at;
    return MIN(r.at + (until != 0), text.n);
}

/* params NULL: they aren't known. */
static void shell_text(struct shell_reader *r, struct str text, unsigned depth, struct shell_params *params)
{
    (void)shell_commands(r, text, depth, 0, 0, params ? params : shell_params_new(r, NULL, 0, true));
}

void shell_read(struct shell_line *line, struct arena *arena, const struct str *argv, size_t n)
{
    struct shell_reader r = {.line = line, .arena = arena};
    line->n = line->text = line->n_words = line->n_expanded = 0;
    line->n_groups = 0;
    r.params = shell_params_new(&r, NULL, 0, true);
    line->is_unreadable = n > SHELL_WORDS_MAX;
    r.group = group_new(line, 0);
    for (size_t i = 0; i < n; i++)
        line->is_unreadable |= argv[i].n > SHELL_TEXT_MAX;
    shell_words(&r, argv, MIN(n, (size_t)SHELL_WORDS_MAX), 0);
}
