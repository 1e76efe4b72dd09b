// The tables of all settings: that of `Simulation`, and with it of every structure in it, see
// `sim/schema`.
#include "cluster/config.h"
#include "sim/schema/tables.h"
#include "workload/requests.h"

namespace spillway::sim {

template const TypeInfo& type_of<cluster::Simulation>();
// Tables that other sources use directly.
template const TypeInfo& type_of<gateway::Admission>();
template const TypeInfo& type_of<gateway::Controller>();
template const TypeInfo& type_of<gateway::Fairness>();
template const TypeInfo& type_of<gateway::Gateway>();
template const TypeInfo& type_of<gateway::Guard>();
template const TypeInfo& type_of<gateway::Limit>();
template const TypeInfo& type_of<gateway::Queue>();
template const TypeInfo& type_of<instance::Ingress>();
template const TypeInfo& type_of<instance::Plant>();
template const TypeInfo& type_of<router::Router>();
template const TypeInfo& type_of<workload::Submission>();
template const TypeInfo& type_of<workload::Synthetic>();
template const TypeInfo& type_of<workload::Tenant>();
template const TypeInfo& type_of<workload::Trace>();
template const TypeInfo& type_of<workload::Workload>();

}  // namespace spillway::sim
