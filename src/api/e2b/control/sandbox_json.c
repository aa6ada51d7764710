/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/sandbox_json.h"
#include "api/e2b/call.h"
#include "base/mem.h"

#include <inttypes.h>

/* The last second of the year 9999. */
static const usec_t NEVER = 253402300799 * USEC_PER_SEC;

void sandbox_json_time(struct buf *b, usec_t real)
{
    char text[CLOCK_TEXT_MAX];
    clock_format(real ? real : NEVER, 6, text);
    buf_printf(b, "\"%s\"", text);
}

const char *sandbox_json_state(enum sandbox_state state)
{
    switch (state) {
    case SANDBOX_RUNNING:
        return "running";
    case SANDBOX_PAUSING:
    case SANDBOX_PAUSED:
    case SANDBOX_RESUMING:
        return "paused";
    default:
        return NULL;
    }
}

bool sandbox_json_exists(const struct sandbox *sb)
{
    return sb && !sandbox_info(sb)->hidden && sandbox_json_state(sandbox_info(sb)->state);
}

static void append_str(struct buf *b, const char *name, const char *value)
{
    if (value)
        json_put_text(b, name, value);
}

static void append_common(struct buf *b, const struct sandbox_info *info)
{
    json_open(b, "sandboxID", str_of(info->id));
    append_str(b, "templateID", info->template_id);
    append_str(b, "alias", info->template_alias);
    append_str(b, "clientID", "cove");
    append_str(b, "envdVersion", ENVD_VERSION);
}

void sandbox_json_access(struct buf *b, const struct sandbox_info *info, const char *domain)
{
    append_common(b, info);
    append_str(b, "envdAccessToken", info->access_token);
    append_str(b, "trafficAccessToken", info->traffic_token);
    json_put_text(b, "domain", domain);
    buf_append_char(b, '}');
}

static void append_listed(struct buf *b, const struct sandbox_info *info)
{
    const char *state = sandbox_json_state(info->state);
    append_common(b, info);
    buf_append_cstr(b, ",\"startedAt\":");
    sandbox_json_time(b, info->started);
    buf_append_cstr(b, ",\"endAt\":");
    sandbox_json_time(b, info->end_at);
    append_str(b, "state", state ? state : "running");
    buf_printf(b, ",\"cpuCount\":%u,\"memoryMB\":%" PRIu64 ",\"diskSizeMB\":%" PRIu64 ",\"volumeMounts\":[",
               MAX((info->cpu_milli + 999) / 1000, 1u), info->memory_bytes >> 20, info->disk_bytes >> 20);
    for (size_t i = 0; i < info->n_mounts; i++) {
        json_open(b, "name", info->mounts[i].name);
        json_put_str(b, "path", info->mounts[i].path);
        buf_append_char(b, '}');
    }
    buf_append_char(b, ']');
    const char *before = ",\"metadata\":{";
    for (size_t i = 0; i < info->n_metadata; i++) {
        if (facade_owns_key(info->metadata[i].key))
            continue;
        buf_append_cstr(b, before);
        before = ",";
        buf_append_json_string(b, info->metadata[i].key);
        buf_append_char(b, ':');
        buf_append_json_string(b, info->metadata[i].value);
    }
    if (before[1] == 0)
        buf_append_char(b, '}');
}

void sandbox_json_listed(struct buf *b, const struct sandbox_info *info)
{
    append_listed(b, info);
    buf_append_char(b, '}');
}

void sandbox_json_detail(struct buf *b, const struct sandbox_info *info, const json_t *network, const char *domain,
                         bool with_token)
{
    AUTO_FREE char *fields = network ? json_dumps(network, JSON_COMPACT) : NULL;
    append_listed(b, info);
    json_put_text(b, "domain", domain);
    append_str(b, "envdAccessToken", with_token ? info->access_token : NULL);
    if (fields)
        buf_printf(b, ",\"network\":%s", fields);
    buf_printf(b, ",\"allowInternetAccess\":%s,\"lifecycle\":{\"autoResume\":%s,\"onTimeout\":\"%s\"}}",
               info->allow_internet ? "true" : "false", info->auto_resume ? "true" : "false",
               info->pause_on_timeout ? "pause" : "kill");
}

void sandbox_json_sample(struct buf *b, const struct sandbox_sample *sample)
{
    char text[CLOCK_TEXT_MAX];
    clock_format(sample->at, 0, text);
    buf_printf(b,
               "{\"timestamp\":\"%s\",\"timestampUnix\":%" PRIu64
               ",\"cpuCount\":%u,\"cpuUsedPct\":%.2f,\"memUsed\":%" PRIu64 ",\"memTotal\":%" PRIu64
               ",\"memCache\":%" PRIu64 ",\"diskUsed\":%" PRIu64 ",\"diskTotal\":%" PRIu64 "}",
               text, (uint64_t)(sample->at / USEC_PER_SEC), sample->cpu_count, sample->cpu_used_pct,
               sample->memory_used, sample->memory_total, sample->memory_cache, sample->disk_used, sample->disk_total);
}
