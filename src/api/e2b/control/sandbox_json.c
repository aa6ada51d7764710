/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/sandbox_json.h"
#include "api/e2b/call.h"

#include <inttypes.h>

/* The last second of the year 9999. */
static const usec_t NEVER = 253402300799 * USEC_PER_SEC;

json_t *sandbox_json_time(usec_t real)
{
    char text[CLOCK_TEXT_MAX];
    clock_format(real ? real : NEVER, 6, text);
    return json_string(text);
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

static json_t *sandbox_json_common(const struct sandbox_info *info)
{
    return json_pack("{s:s,s:s*,s:s*,s:s,s:s}", "sandboxID", info->id, "templateID", info->template_id, "alias",
                     info->template_alias, "clientID", "cove", "envdVersion", ENVD_VERSION);
}

json_t *sandbox_json_access(const struct sandbox_info *info, const char *domain)
{
    json_t *one = sandbox_json_common(info);
    (void)json_object_update_new(one, json_pack("{s:s*,s:s*,s:s?}", "envdAccessToken", info->access_token,
                                                "trafficAccessToken", info->traffic_token, "domain", domain));
    return one;
}

json_t *sandbox_json_listed(const struct sandbox_info *info)
{
    const char *state = sandbox_json_state(info->state);
    AUTO_JSON json_t *metadata = facade_metadata(info);
    json_t *one = sandbox_json_common(info), *mounts = json_array();
    for (size_t i = 0; i < info->n_mounts; i++)
        (void)json_array_append_new(mounts, json_pack("{s:o,s:o}", "name", call_text(info->mounts[i].name), "path",
                                                      call_text(info->mounts[i].path)));
    (void)json_object_update_new(
        one, json_pack("{s:o,s:o,s:s,s:i,s:I,s:I,s:o,s:O*}", "startedAt", sandbox_json_time(info->started), "endAt",
                       sandbox_json_time(info->end_at), "state", state ? state : "running", "cpuCount",
                       (int)MAX((info->cpu_milli + 999) / 1000, 1u), "memoryMB", (json_int_t)(info->memory_bytes >> 20),
                       "diskSizeMB", (json_int_t)(info->disk_bytes >> 20), "volumeMounts", mounts, "metadata",
                       json_object_size(metadata) ? metadata : NULL));
    return one;
}

json_t *sandbox_json_detail(const struct sandbox_info *info, const json_t *network, const char *domain, bool with_token)
{
    json_t *one = sandbox_json_listed(info);
    (void)json_object_update_new(one,
                                 json_pack("{s:s?,s:s*,s:O*,s:b,s:{s:b,s:s}}", "domain", domain, "envdAccessToken",
                                           with_token ? info->access_token : NULL, "network", network,
                                           "allowInternetAccess", info->allow_internet, "lifecycle", "autoResume",
                                           info->auto_resume, "onTimeout", info->pause_on_timeout ? "pause" : "kill"));
    return one;
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
