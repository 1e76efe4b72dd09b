#include "cluster/submission_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "cluster/context.h"

namespace spillway::cluster {

namespace {

std::string place(std::size_t change, const char* list, std::size_t entry, const char* field) {
  const std::string at = sim::join_path(sim::index_path("changes", change), list);
  return sim::join_path(sim::index_path(at, entry), field);
}

// Of these requests, the lengths of outputs change when they are handed off.
bool counts_outputs(const Simulation& simulation) {
  const gateway::Gateway& gateway = simulation.gateway;
  const auto by_maximum = [](const auto& policies) {
    return std::ranges::any_of(policies, [](const auto& policy) {
      return std::visit(
          [](const auto& config) {
            if constexpr (requires { config.output_length; }) {
              return config.output_length == gateway::OutputLength::max_tokens;
            } else {
              return false;
            }
          },
          policy);
    });
  };
  const bool knows_outputs = std::ranges::any_of(gateway.bands, [](const gateway::Band& band) {
    const gateway::Cost* cost = gateway::cost_of(band.fairness);
    return cost && cost->output_estimate == gateway::OutputEstimate::oracle;
  });
  return reads_output_lengths(simulation) || by_maximum(gateway.limit) ||
         by_maximum(gateway.admission) || knows_outputs;
}

struct Submitted {
  double at_s;
  bool prefill_only;
  bool is_handed_off = false;
};

std::vector<Submitted> submitted_in(const std::vector<Change>& changes) {
  std::vector<Submitted> all;
  for (const Change& change : changes) {
    for (const workload::Submission& request : change.submit) {
      all.push_back({change.at_s, request.prefill_only});
    }
  }
  return all;
}

// Empty: the request can be handed off then.
std::string why_not(const Submitted& request, double at_s) {
  if (!request.prefill_only) return "must be a request with prefill_only";
  if (request.is_handed_off) return "must be handed off once";
  if (request.at_s >= at_s) {
    return "arrives at " + sim::to_text(request.at_s) + " s: it must have arrived before at_s";
  }
  return "";
}

}  // namespace

std::vector<sim::Violation> violations_by_instances_of_submissions(const Simulation& simulation) {
  std::vector<sim::Violation> out;
  const std::vector<Change>& changes = simulation.changes;
  const auto fleet = static_cast<std::int64_t>(num_instances(simulation));
  for (std::size_t i = 0; i < changes.size(); ++i) {
    for (std::size_t j = 0; j < changes[i].submit.size(); ++j) {
      const std::optional<std::int64_t> instance = changes[i].submit[j].instance;
      if (!instance || *instance < fleet) continue;
      out.push_back({place(i, "submit", j, "instance"), std::to_string(*instance),
                     "must be one of the " + std::to_string(fleet) + " instances, from 0"});
    }
  }
  return out;
}

std::vector<sim::Violation> violations_by_hand_offs(const Simulation& simulation) {
  std::vector<sim::Violation> out;
  const std::vector<Change>& changes = simulation.changes;
  std::vector<Submitted> submitted = submitted_in(changes);
  if (std::ranges::any_of(submitted, &Submitted::prefill_only)) {
    const bool has_legs = has_pools(simulation);
    const bool goes_on = has_migration(simulation);
    const bool comes_first = simulation.disaggregation.handoff == router::Handoff::after_prefill;
    const bool counts = counts_outputs(simulation);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      for (std::size_t j = 0; j < changes[i].submit.size(); ++j) {
        const workload::Submission& request = changes[i].submit[j];
        if (!request.prefill_only) continue;
        const auto require = [&](bool holds, const char* needed) {
          if (holds) return;
          out.push_back({place(i, "submit", j, "prefill_only"), "true", needed});
        };
        require(request.instance.has_value(), "must be false without instance");
        require(has_legs, "must be false without prefill and decode pools");
        require(comes_first, "needs disaggregation.handoff: after_prefill");
        require(!goes_on, "needs fleet.migration.limit: 0");
        require(!counts,
                "must be false where a policy counts output tokens before they are emitted: those "
                "of this request are not known before it is handed off");
      }
    }
  }
  const auto fleet = static_cast<std::int64_t>(num_instances(simulation));
  for (std::size_t i = 0; i < changes.size(); ++i) {
    for (std::size_t j = 0; j < changes[i].hand_off.size(); ++j) {
      const workload::HandOff& to = changes[i].hand_off[j];
      if (to.instance >= fleet) {
        out.push_back({place(i, "hand_off", j, "instance"), std::to_string(to.instance),
                       "must be one of the " + std::to_string(fleet) + " instances, from 0"});
      }
      const std::string at = place(i, "hand_off", j, "request");
      const auto number = static_cast<std::size_t>(to.request);
      if (number >= submitted.size()) {
        out.push_back({at, std::to_string(to.request),
                       "must be one of the " + std::to_string(submitted.size()) +
                           " submitted requests, from 0"});
        continue;
      }
      std::string needed = why_not(submitted[number], changes[i].at_s);
      if (!needed.empty()) out.push_back({at, std::to_string(to.request), std::move(needed)});
      submitted[number].is_handed_off = true;
    }
  }
  return out;
}

}  // namespace spillway::cluster
