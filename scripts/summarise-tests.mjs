// Ends a CI run: the seconds of each suite against its budget, what was skipped, and the last line.
//   summarise-tests.mjs REPORT [FAILED_STEP...]
import { readFileSync } from 'node:fs'
import { relative } from 'node:path'

/** Seconds a suite may take. Over it is told, not failed: machines differ. */
const BUDGETS = {
  unit: 60,
  architecture: 10,
  conformance: 60,
  integration: 300,
  chaos: 420,
  endings: 180,
  browser: 120,
  containers: 300,
}

const [file, ...failedSteps] = process.argv.slice(2)
const report = readReport(file)
const suites = new Map()
for (const { name, startTime, endTime, status, assertionResults } of report.testResults) {
  const [top, second] = relative(process.cwd(), name).split('/')
  const suite = top === 'test' ? second : 'unit'
  const sum = suites.get(suite) ?? { from: Infinity, to: 0, passed: 0, failed: 0, left: 0 }
  sum.from = Math.min(sum.from, startTime)
  sum.to = Math.max(sum.to, endTime)
  for (const { status: outcome } of assertionResults) {
    if (outcome === 'passed') sum.passed += 1
    else if (outcome === 'failed') sum.failed += 1
    else sum.left += 1
  }
  // A file that could not be loaded has no tests to count, and is a failure all the same.
  if (status === 'failed' && !assertionResults.some((test) => test.status === 'failed'))
    sum.failed += 1
  suites.set(suite, sum)
}

const total = { passed: 0, failed: 0 }
for (const [suite, budget] of Object.entries(BUDGETS)) {
  const sum = suites.get(suite)
  if (!sum) {
    print(`${suite}: no tests ran`)
    total.failed += 1
    continue
  }
  const seconds = Math.ceil((sum.to - sum.from) / 1000)
  const over = seconds > budget ? ', OVER ITS BUDGET' : ''
  const left = sum.left > 0 ? `, ${sum.left} SKIPPED (counted as failed)` : ''
  print(
    `${suite}: ${seconds} s of ${budget} s, ${sum.passed} passed, ${sum.failed} failed${left}${over}`,
  )
  total.passed += sum.passed
  total.failed += sum.failed + sum.left
}
// The tests' own failures are counted above, but a run that broke otherwise must not look like none.
for (const step of failedSteps) {
  if (step === 'tests' && total.failed > 0) continue
  print(`FAILED: ${step}`)
  total.failed += 1
}
print(`${total.passed} passed, ${total.failed} failed`)
process.exitCode = total.failed > 0 || total.passed === 0 ? 1 : 0

function readReport(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch (error) {
    print(`there is no report of the tests: ${error.message}`)
    return { testResults: [] }
  }
}

function print(line) {
  process.stdout.write(`${line}\n`)
}
