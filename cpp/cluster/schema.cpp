// The tables of all settings: those of `Simulation`, and so of every noun in it, see `sim/schema`.
#include "cluster/config.h"
#include "sim/schema/tables.h"
#include "workload/requests.h"

namespace spillway::sim {

template const TypeInfo& type_of<cluster::Simulation>();
// Those that other sources ask for by themselves.
template const TypeInfo& type_of<gateway::Admission>();
template const TypeInfo& type_of<instance::Ingress>();
template const TypeInfo& type_of<instance::Plant>();
template const TypeInfo& type_of<workload::Trace>();
template const TypeInfo& type_of<workload::Workload>();

}  // namespace spillway::sim
