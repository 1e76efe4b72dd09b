#include "cluster/request_record.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "cluster/context.h"
#include "workload/column_files.h"
#include "workload/generate.h"
#include "workload/names.h"
#include "workload/synthetic.h"
#include "workload/trace.h"
#include "workload/users.h"

namespace spillway::cluster {

void LegColumns::resize(std::size_t size) {
  prefill_instance.resize(size, -1);
  wasted_tokens.resize(size);
  prefill_retries.resize(size);
  for (auto* column : {&prefill_end, &transfer_begin, &transfer_end, &decode_scheduled}) {
    column->resize(size, sim::kUnset);
  }
}

void LegColumns::clear(sim::RequestId id) {
  prefill_instance[id.index()] = -1;
  prefill_retries[id.index()] = 0;
  for (auto* column : {&prefill_end, &transfer_begin, &transfer_end, &decode_scheduled}) {
    (*column)[id.index()] = sim::kUnset;
  }
}

namespace {

bool may_share_from_outside(const Simulation& simulation) {
  const auto* synthetic = std::get_if<workload::Synthetic>(&simulation.workload);
  if (synthetic && synthetic->is_empty()) return true;
  return std::ranges::any_of(simulation.changes, [](const Change& change) {
    return std::ranges::any_of(change.submit,
                               [](const auto& request) { return !request.segments.empty(); });
  });
}

}  // namespace

std::vector<std::string> tenant_names(const workload::RequestTable& requests) {
  std::vector<std::string> names;
  names.reserve(requests.tenants.size());
  for (const workload::Tenant& tenant : requests.tenants) names.push_back(tenant.name);
  return names;
}

void check_has_requests(const Simulation& simulation, bool is_open) {
  const auto* synthetic = std::get_if<workload::Synthetic>(&simulation.workload);
  const bool submits = std::ranges::any_of(
      simulation.changes, [](const Change& change) { return !change.submit.empty(); });
  if (synthetic && synthetic->is_empty() && !submits && !is_open) {
    throw sim::ConfigError({{"workload.num_requests", "0",
                             "leaves no request: changes must submit some, or an open-ended "
                             "session"}});
  }
  const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
  if (trace && trace->requests && trace->requests->files) {
    if (simulation.metrics.streaming && trace->transforms.empty()) return;
    throw sim::ConfigError({{"workload", trace->file,
                             "is streamed from its file, which needs metrics.streaming and no "
                             "transforms; read it without stream=True"}});
  }
  if (trace && (!trace->requests || trace->requests->size() == 0)) {
    throw sim::ConfigError({{"workload", trace->file.empty() ? "an empty trace" : trace->file,
                             "holds no requests; read some with --trace FILE, or in Python with "
                             "spillway.read_trace(FILE)"}});
  }
}

std::shared_ptr<const workload::Requests> offered_requests(
    const Simulation& simulation, std::uint64_t seed, const std::function<bool()>& interrupted) {
  if (const auto* trace = std::get_if<workload::Trace>(&simulation.workload)) {
    // Arrivals that depend on the service are kept per run.
    return trace->max_in_flight > 0 ? nullptr : workload::transformed(*trace, seed);
  }
  const auto& synthetic = std::get<workload::Synthetic>(simulation.workload);
  if (simulation.metrics.streaming || workload::has_users(synthetic)) return nullptr;
  return workload::generate(synthetic, seed, simulation.quantum_ns, interrupted);
}

std::shared_ptr<RequestRecord> make_record(const Simulation& simulation, std::uint64_t seed,
                                           std::shared_ptr<const workload::Requests> offered) {
  const sim::Time warm_up = sim::from_seconds(simulation.warm_up_s);
  const bool streams = simulation.metrics.streaming;
  const metrics::Accounting accounting = simulation.metrics.accounting;
  const auto* trace = std::get_if<workload::Trace>(&simulation.workload);
  const bool is_shared = offered != nullptr && !streams;
  if (trace && !offered) offered = workload::transformed(*trace, seed);
  std::vector<workload::CachedPart> warm;
  if (trace) warm = workload::warm_parts(*offered);
  std::shared_ptr<RequestRecord> record;
  if (is_shared) {
    record = std::make_shared<RequestRecord>(accounting, std::move(offered), simulation.tenants,
                                             simulation.slo_classes, warm_up);
  } else {
    auto stream = trace && offered->files ? workload::stream(offered, offered->files)
                  : trace ? workload::stream(offered)
                          : workload::stream(std::get<workload::Synthetic>(simulation.workload),
                                             seed, simulation.quantum_ns);
    record =
        std::make_shared<RequestRecord>(accounting, std::move(stream), !streams, std::move(offered),
                                        simulation.tenants, simulation.slo_classes, warm_up);
  }
  record->requests.start_warm(std::move(warm));
  if (may_share_from_outside(simulation)) record->requests.share_from_outside();
  workload::InternedNames submitted_tenants, submitted_classes;
  for (const Change& change : simulation.changes) {
    for (const workload::Submission& submission : change.submit) {
      submitted_tenants.position(submission.tenant);
      submitted_classes.position(submission.slo_class);
    }
  }
  if (trace && trace->empty_outputs == workload::EmptyOutputs::failed &&
      !simulation.metrics.uses_reported_latencies()) {
    record->requests.fail_empty_outputs();
  }
  record->requests.know(submitted_tenants.names(), submitted_classes.names());
  if (has_models(simulation)) record->requests.know_models(models_of(simulation));
  if (!simulation.length_prediction.is_exact()) {
    record->requests.predict_lengths(simulation.length_prediction, seed);
  }
  workload::RequestStates& states = record->states;
  states.reports = simulation.metrics.uses_reported_latencies();
  states.has_ranks = std::any_of(simulation.instances.begin(), simulation.instances.end(),
                                 [](const auto& group) { return group.data_parallel_size > 1; });
  states.resumes = has_migration(simulation);
  if (has_pools(simulation) && !streams) record->legs = std::make_unique<LegColumns>();
  states.token_gaps.resize(record->requests.num_groups(), streams);
  return record;
}

}  // namespace spillway::cluster
