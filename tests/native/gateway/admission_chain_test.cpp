// The chain of admission policies, with scripted policies that record their calls.
#include "gateway/admission_chain.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "gateway/config.h"
#include "offered.h"

using namespace spillway;
using gateway::AdmissionChain;
using gateway::AdmissionPolicy;
using gateway::Verdict;
using sim::RequestId;
using sim::Time;

namespace {

using Notes = std::vector<std::string>;

class ScriptedAdmission final : public AdmissionPolicy {
 public:
  ScriptedAdmission(std::string name, Verdict verdict, Notes& notes)
      : name_(std::move(name)), verdict_(verdict), notes_(notes) {}

  Verdict decide(const signals::RequestView&, const signals::View&, Time, sim::Draws&) override {
    notes_.push_back(name_ + " decides");
    return verdict_;
  }
  void commit(const signals::RequestView&, Time) override { notes_.push_back(name_ + " commits"); }
  void dispatched(const signals::RequestView&, Time) override {
    notes_.push_back(name_ + " dispatched");
  }
  void first_token(const signals::RequestView&, sim::InstanceId instance, Time) override {
    notes_.push_back(name_ + " first token of " + std::to_string(instance.index()));
  }
  void finished(const signals::RequestView&, workload::Outcome outcome, Time) override {
    notes_.push_back(name_ + " finished " + std::to_string(static_cast<int>(outcome)));
  }

 private:
  std::string name_;
  Verdict verdict_;
  Notes& notes_;
};

// Policies a, b and c, of which only b observes; their reasons begin at 10, 20 and 30.
AdmissionChain chain_of(std::vector<Verdict> verdicts, Notes& notes) {
  std::vector<AdmissionChain::Link> links;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    links.push_back(
        {std::make_unique<ScriptedAdmission>(name, verdicts[i], notes), 10 * (i + 1), name == "b"});
  }
  return AdmissionChain(std::move(links));
}

const auto kOneRequest = make_table({{}});
const signals::RequestView kRequest(*kOneRequest, RequestId{});
const Verdict kAdmit = Verdict::admit();

std::optional<std::size_t> decide(AdmissionChain& chain, const signals::View& view) {
  sim::Draws draws(1, sim::Stream::admission, 0);
  return chain.decide(kRequest, view, Time{0}, draws);
}

void policies_are_asked_in_order() {
  Notes notes;
  AdmissionChain chain = chain_of({kAdmit, kAdmit, kAdmit}, notes);
  check(!decide(chain, view_of_nothing()), "all admit");
  check(notes == Notes{"a decides", "b decides", "c decides"}, "in order, and nothing else");
  notes.clear();
  chain.commit(kRequest, Time{0});
  check(notes == Notes{"a commits", "b commits", "c commits"}, "whether or not they observe");
}

void the_first_rejection_wins() {
  Notes notes;
  AdmissionChain chain = chain_of({kAdmit, Verdict::reject(2), Verdict::reject(0)}, notes);
  check(decide(chain, view_of_nothing()) == std::size_t{22}, "the reason of b, behind those of a");
  check(notes == Notes{"a decides", "b decides"}, "c is not asked");
}

void only_observers_are_notified() {
  Notes notes;
  AdmissionChain chain = chain_of({kAdmit, kAdmit, kAdmit}, notes);
  chain.dispatched(kRequest, Time{0});
  chain.first_token(kRequest, sim::InstanceId{7}, Time{0});
  chain.finished(kRequest, workload::Outcome::completed, Time{0});
  const std::string end = std::to_string(static_cast<int>(workload::Outcome::completed));
  check(notes == Notes{"b dispatched", "b first token of 7", "b finished " + end}, "b alone");
}

void configured_reasons_are_those_of_the_policy() {
  const std::vector<gateway::Admission> policies{gateway::AlwaysAdmit{}, gateway::BusyThreshold{}};
  AdmissionChain chain = gateway::make_chain(policies, {});
  const signals::Sources sources{.has_workers = false};
  const signals::LocalState local;
  const auto reason = decide(chain, {sources, local, Time{0}});
  check(reason && gateway::kAdmissionReasons[*reason].name == "no_workers", "its second one");
}

// A tenant without seats is admitted while it has no request in flight.
void configured_observers_learn_what_becomes_of_requests() {
  const auto table = make_table({{}, {}}, {{}}, {{.priority = -1}});
  const std::vector<gateway::Admission> policies{gateway::AlwaysAdmit{},
                                                 gateway::TenantBudget{.default_share = 0}};
  AdmissionChain chain =
      gateway::make_chain(policies, {table->tenants, table->slo_classes, table->models(), 1});
  const signals::RequestView first(*table, RequestId{0});
  const signals::RequestView second(*table, RequestId{1});
  const auto admits = [&](Time now) {
    sim::Draws draws(1, sim::Stream::admission, 0);
    return !chain.decide(second, view_of_nothing(), now, draws);
  };
  check(admits(Time{1}), "nothing is in flight");
  chain.commit(first, Time{1});
  chain.dispatched(first, Time{1});
  check(!admits(Time{2}), "one is");
  chain.finished(first, workload::Outcome::completed, Time{3});
  check(admits(Time{4}), "it has left");
}

}  // namespace

CASES(policies_are_asked_in_order, the_first_rejection_wins, only_observers_are_notified,
      configured_reasons_are_those_of_the_policy,
      configured_observers_learn_what_becomes_of_requests);
