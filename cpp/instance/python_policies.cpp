#include "instance/python_policies.h"

#include "instance/scheduler/scheduler.h"

namespace spillway::instance {

std::unique_ptr<SchedulerPolicy> make(const PythonScheduler& config,
                                      const workload::RequestTable& requests) {
  return config.make_policy("instances.scheduler", requests);
}

}  // namespace spillway::instance
