#pragma once

#include <variant>

#include "instance/python_policies.h"
#include "instance/scheduler/fcfs.h"
#include "instance/scheduler/longest_prefix.h"
#include "instance/scheduler/priority_fcfs.h"
#include "instance/scheduler/reverse_priority.h"
#include "instance/scheduler/sjf.h"

namespace spillway::instance {

/// Every scheduler. This list is the only place that names them all.
using Scheduler =
    std::variant<Fcfs, PriorityFcfs, Sjf, ReversePriority, LongestPrefix, PythonScheduler>;

}  // namespace spillway::instance
