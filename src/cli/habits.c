/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/habits.h"
#include "base/mem.h"

struct habit {
    const char *word, *instead;
};

static const struct habit habit_commands[] = {
    {"auth", "did you mean 'cove key'? It prints the API key"},
    {"backup", "docs/OPERATIONS.md says how to back the state directory up"},
    {"build", "did you mean 'cove template build'?"},
    {"checkpoint", "did you mean 'cove rewind ID', which lists them, or 'cove snapshot ID'?"},
    {"clone", "did you mean 'cove fork ID'?"},
    {"commit", "did you mean 'cove snapshot ID'?"},
    {"compose", "did you mean 'cove docker compose'?"},
    {"config", "the configuration is /etc/cove/cove.yaml; 'cove reload' applies it"},
    {"connect", "did you mean 'cove exec -it ID -- bash'?"},
    {"container", "did you mean 'cove ls'?"},
    {"create", "did you mean 'cove run --keep -- COMMAND'?"},
    {"delete", "did you mean 'cove rm ID'?"},
    {"destroy", "did you mean 'cove rm ID'?"},
    {"df", "did you mean 'cove pool'?"},
    {"download", "did you mean 'cove cp ID:PATH .'?"},
    {"history", "did you mean 'cove logs ID', or 'cove log ID'?"},
    {"image", "did you mean 'cove template'?"},
    {"images", "did you mean 'cove template ls'?"},
    {"import", "did you mean 'cove template build --name NAME --from-oci FILE'?"},
    {"info", "did you mean 'cove doctor'?"},
    {"inspect", "did you mean 'cove ls --json'?"},
    {"kill", "did you mean 'cove rm ID'?"},
    {"list", "did you mean 'cove ls'?"},
    {"load", "did you mean 'cove template build --name NAME --from-oci FILE'?"},
    {"login", "'cove template build' takes --registry-user, or --docker-config"},
    {"metrics", "GET /metrics serves them to Prometheus; 'cove stats' shows those of sandboxes"},
    {"network", "did you mean 'cove policy', or 'cove net ID'?"},
    {"new", "did you mean 'cove run --keep -- COMMAND'?"},
    {"port", "did you mean 'cove url ID PORT'?"},
    {"prune", "did you mean 'cove gc'?"},
    {"pull", "an image becomes a template: 'cove template build --name NAME --from-image IMAGE'"},
    {"quota", "did you mean 'cove tenant set NAME'?"},
    {"remove", "did you mean 'cove rm ID'?"},
    {"restart", "did you mean 'cove pause ID' and 'cove resume --cold ID'?"},
    {"restore", "did you mean 'cove rewind ID', or 'cove run --template SNAPSHOT'?"},
    {"rmi", "did you mean 'cove template rm NAME'?"},
    {"rollback", "did you mean 'cove rewind ID'?"},
    {"sandbox", "did you mean 'cove ls', 'cove run --keep -- COMMAND' or 'cove rm ID'?"},
    {"sbx", "did you mean 'cove ls', 'cove run --keep -- COMMAND' or 'cove rm ID'?"},
    {"serve", "'systemctl start cove', or 'make start', starts the service"},
    {"sh", "did you mean 'cove exec -it ID -- sh', or 'cove run -it -- sh'?"},
    {"show", "did you mean 'cove ls --json'?"},
    {"spawn", "did you mean 'cove run --keep -- COMMAND'?"},
    {"ssh", "did you mean 'cove exec -it ID -- bash'?"},
    {"start", "did you mean 'cove resume ID', or 'cove run'?"},
    {"status", "did you mean 'cove ls', 'cove stats' or 'cove doctor'?"},
    {"stop", "did you mean 'cove rm ID', or 'cove pause ID'? 'systemctl stop cove' or 'make stop' ends the service"},
    {"system", "did you mean 'cove doctor', 'cove pool' or 'cove gc'?"},
    {"tag", "did you mean 'cove template tag NAME TAG'?"},
    {"top", "did you mean 'cove ps ID', or 'cove stats'?"},
    {"undo", "did you mean 'cove rewind ID'?"},
    {"unpause", "did you mean 'cove resume ID'?"},
    {"upgrade", "docs/OPERATIONS.md says how the service is upgraded"},
    {"upload", "did you mean 'cove cp FILE ID:PATH'?"},
    {"volumes", "did you mean 'cove volume ls'?"},
};

static const struct habit habit_options[] = {
    {"--name", "a sandbox goes by its id; --metadata name=NAME labels it, and 'cove ls' shows that"},
    {"-d", "did you mean --keep? 'cove exec -d ID -- COMMAND' then starts something in it"},
    {"--detach", "did you mean --keep? 'cove exec -d ID -- COMMAND' then starts something in it"},
    {"-p", "every port can be reached as it is: 'cove url ID PORT' prints its address"},
    {"--publish", "every port can be reached as it is: 'cove url ID PORT' prints its address"},
    {"--rm", "leave it out: the sandbox is removed unless --keep is given"},
    {"-m", "did you mean --memory SIZE?"},
    {"--mount", "did you mean --volume NAME:PATH? 'cove cp' copies files of this machine"},
    {"--network", "did you mean --net deny, or --allow TARGET?"},
    {"--workdir", "did you mean --cwd DIR?"},
    {"--image", "did you mean --template NAME? 'cove template build --name NAME --from-image IMAGE' makes one"},
    {"--label", "did you mean --metadata KEY=VALUE?"},
    {"-l", "did you mean --metadata KEY=VALUE?"},
    {"--entrypoint", "the command is what stands behind the options: cove run -- COMMAND"},
    {"--env-file", "did you mean -e NAME=VALUE? It may be given several times"},
    {"rm -f", "leave it out: rm ends what runs, and asks nothing"},
    {"rm --force", "leave it out: rm ends what runs, and asks nothing"},
    {"stats --no-stream", "leave it out: stats prints once"},
    {"--privileged", "there is no such mode: inside, the command may be root of the sandbox (-u root)"},
};

enum { HABIT_WORD_MAX = 24 };

/* The distance of optimal string alignment. */
static size_t habit_distance(struct str a, struct str b)
{
    size_t d[HABIT_WORD_MAX + 1][HABIT_WORD_MAX + 1];
    for (size_t i = 0; i <= a.n; i++)
        d[i][0] = i;
    for (size_t k = 0; k <= b.n; k++)
        d[0][k] = k;
    for (size_t i = 1; i <= a.n; i++) {
        for (size_t k = 1; k <= b.n; k++) {
            size_t least = MIN(d[i - 1][k], d[i][k - 1]) + 1;
            least = MIN(least, d[i - 1][k - 1] + (a.p[i - 1] != b.p[k - 1]));
            if (i > 1 && k > 1 && a.p[i - 1] == b.p[k - 2] && a.p[i - 2] == b.p[k - 1])
                least = MIN(least, d[i - 2][k - 2] + 1);
            d[i][k] = least;
        }
    }
    return d[a.n][b.n];
}

bool habit_is_slip(struct str word, const char *name)
{
    struct str to = str_of(name);
    return word.n > 1 && word.n <= HABIT_WORD_MAX && to.n <= HABIT_WORD_MAX &&
           habit_distance(word, to) <= (to.n < 6 ? 1 : 2);
}

static const char *habit_find(const struct habit *all, size_t n, struct str word)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqc(word, all[i].word))
            return all[i].instead;
    return NULL;
}

const char *habit_of_command(const char *name)
{
    return habit_find(habit_commands, ARRAY_SIZE(habit_commands), str_of(name));
}

/* "-p8000:80" is "-p" with its value. */
const char *habit_of_option(const struct command *command, const char *option)
{
    const bool is_long = option[0] == '-' && option[1] == '-';
    const size_t n = is_long ? strcspn(option, "=") : MIN(strlen(option), (size_t)2);
    const bool runs = strcmp(command->name, "run") == 0 || strcmp(command->name, "exec") == 0;
    AUTO_FREE char *word = mem_printf("%s%s%.*s", runs ? "" : command->name, runs ? "" : " ", (int)n, option);
    return habit_find(habit_options, ARRAY_SIZE(habit_options), str_of(word));
}
