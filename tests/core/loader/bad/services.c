/* Uses the log and run services in plan, and says in the metrics what it saw. */
#include "shale/sharding.h"
#define ID "services"
#define SHARDING_PLAN plan_with_services
static shale_status* plan_with_services(void*, const shale_model*, const shale_topology*,
                                        const shale_sharding_builder*);
#include <pthread.h>
#include "good.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void job(void* arg, uint32_t k) {
  pthread_mutex_lock(&mutex);
  *(uint64_t*)arg += k;
  pthread_mutex_unlock(&mutex);
}

static shale_status* plan_with_services(void* self, const shale_model* m, const shale_topology* t,
                                        const shale_sharding_builder* b) {
  uint64_t sum = 0;
  const shale_log* log = host->get_service(host->ctx, SHALE_LOG_SERVICE);
  const shale_run* run = host->get_service(host->ctx, SHALE_RUN_SERVICE);
  SHALE_VAR(shale_unit_plan, u);
  u.shard_group = u.reshard_group = SHALE_GROUP_WORLD;
  (void)self, (void)m, (void)t;
  if (!log) return shale_fail(host, SHALE_UNSUPPORTED, SHALE_LOG_SERVICE, "is not there");
  log->write(log->ctx, 3, shale_text("two\nlines"));
  if (host->get_service(host->ctx, SHALE_FILES_SERVICE) || host->get_service(host->ctx, "shale.lane/2") ||
      host->get_service(host->ctx, "shale.log/1x") || host->get_service(host->ctx, "") ||
      host->get_service(host->ctx, NULL))
    return shale_fail(host, SHALE_INTERNAL, "", "a service that should not be there");
  if (run) {
    run->parallel(run->ctx, 100, job, &sum);
    log->metric(log->ctx, "sum", "", (double)sum);
    log->metric(log->ctx, "rank", "", run->rank + 10 * run->world + 100 * run->local_rank);
    log->metric(log->ctx, "seed", "", (double)run->seed);
    log->metric(log->ctx, "limit", "s", run->wait_limit);
    log->metric(log->ctx, "ending", "", run->ending(run->ctx));
    log->write(log->ctx, 2, run->scratch_dir);
  }
  return b->set_unit(b->ctx, SHALE_ALL_UNITS, &u);
}
