// The tables of all settings: that of `Simulation`, and with it of every structure in it, see
// `sim/schema`.
#include "cluster/config.h"
#include "sim/schema/tables.h"
#include "workload/requests.h"

namespace spillway::sim {

template const TypeInfo& type_of<cluster::Simulation>();
// Tables that other sources use directly.
template const TypeInfo& type_of<gateway::Admission>();
template const TypeInfo& type_of<instance::Ingress>();
template const TypeInfo& type_of<instance::Plant>();
template const TypeInfo& type_of<workload::Trace>();
template const TypeInfo& type_of<workload::Workload>();

}  // namespace spillway::sim
