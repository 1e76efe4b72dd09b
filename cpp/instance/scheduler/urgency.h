#pragma once

#include <cstdint>

#include "instance/scheduler/priority.h"
#include "sim/ids.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// The priority as a rank; the smallest is the most urgent.
inline std::int64_t urgency_rank(Priority priority, sim::RequestId id,
                                 const workload::RequestTable& requests) {
  switch (priority) {
    case Priority::slo_class:
      return -requests.class_of(id).priority;
    case Priority::constant:
      return 0;
    case Priority::age:
      return requests.arrival(id).ns;
    case Priority::inverted_age:
      return -requests.arrival(id).ns;
  }
  return 0;
}

}  // namespace spillway::instance
