// Preloaded into a service (`--import`), it shifts the process's wall clock by CLOCK_SKEW_MS; timers go on as they did.
const skewMs = Number(process.env['CLOCK_SKEW_MS'])
if (!Number.isInteger(skewMs)) throw new Error('CLOCK_SKEW_MS must be whole milliseconds')

const realNow = Date.now
const now = () => realNow() + skewMs

globalThis.Date = new Proxy(Date, {
  construct: (real, args, target) =>
    Reflect.construct(real, args.length > 0 ? args : [now()], target),
  apply: (real) => new real(now()).toString(),
  get: (real, key) => (key === 'now' ? now : Reflect.get(real, key)),
})
