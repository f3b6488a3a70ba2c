import { lookup as dnsLookup, type LookupAddress } from 'node:dns'
import { BlockList, isIP, type LookupFunction } from 'node:net'

/** What outgoing calls may reach besides the public internet. */
export type Outbound = {
  /** Host names, addresses and CIDRs that are reachable although they are private. */
  readonly allow: readonly string[]
  /** Without authentication the service is one developer's: the own machine is reachable. */
  readonly openMode: boolean
}

export type OutboundGuard = {
  /** For a host that is an address already, in any spelling that a URL allows. */
  permitsAddress(address: string): boolean
  /** Resolves a name to those of its addresses that may be reached; an error if there is none. */
  lookup: LookupFunction
}

/** A call was refused before anything was connected. */
export class OutboundRefused extends Error {
  override readonly name = 'OutboundRefused'
}

/** Special-purpose ranges of the IANA registries: nothing in them is a public service. */
const NOT_PUBLIC: readonly (readonly [string, number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
  ['::', 96],
  ['64:ff9b::', 96],
  ['64:ff9b:1::', 48],
  ['100::', 64],
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
  ['5f00::', 16],
  ['fc00::', 7],
  ['fe80::', 10],
  ['fec0::', 10],
  ['ff00::', 8],
]

const LOOPBACK: readonly (readonly [string, number])[] = [
  ['127.0.0.0', 8],
  ['::1', 128],
]

/**
 * Guards the connections to one host. The check is made on the address that is connected to, at
 * the moment of connecting: a name that resolves anew to a private address is refused as well.
 * @param host as `URL.hostname` gives it
 */
export function guardOutbound(host: string, { allow, openMode }: Outbound): OutboundGuard {
  const name = host.toLowerCase()
  const isAllowedName = allow.some((entry) => entry.toLowerCase() === name)
  const allowed = blockList(allow.flatMap(cidrOf))
  const loopback = blockList(openMode ? LOOPBACK : [])

  function permitsAddress(address: string): boolean {
    const bare = bareAddress(address)
    if (isIP(bare) === 0) return false
    if (isAllowedName) return true
    return !contains(PRIVATE, bare) || contains(allowed, bare) || contains(loopback, bare)
  }

  return {
    permitsAddress,
    lookup(hostname, options, callback) {
      dnsLookup(hostname, { ...options, all: true }, (error, addresses: LookupAddress[]) => {
        if (error) return callback(error, [])
        const reachable = addresses.filter(({ address }) => permitsAddress(address))
        const first = reachable[0]
        if (!first)
          return callback(new OutboundRefused(`${hostname} is not reachable from here`), [])
        if (options.all === true) return callback(null, reachable)
        callback(null, first.address, first.family)
      })
    },
  }
}

/** Whether an entry of the list means something: a host name, an address or a CIDR. */
export function isOutboundEntry(entry: string): boolean {
  return /^[A-Za-z0-9._-]+$/.test(entry) || cidrOf(entry).length > 0
}

/** `[::1]` of a URL as `::1`, and an IPv4 address in IPv6 clothes as what it is. */
export function bareAddress(host: string): string {
  const bare = host.replace(/^\[|\]$/g, '').replace(/%.*$/, '')
  const mapped = /^::ffff:(?:(\d+\.\d+\.\d+\.\d+)|([0-9a-f]{1,4}):([0-9a-f]{1,4}))$/i.exec(bare)
  if (!mapped) return bare
  if (mapped[1] !== undefined) return mapped[1]
  const high = Number.parseInt(mapped[2] ?? '0', 16)
  const low = Number.parseInt(mapped[3] ?? '0', 16)
  return [high >> 8, high & 255, low >> 8, low & 255].join('.')
}

const PRIVATE = blockList(NOT_PUBLIC)

function blockList(ranges: readonly (readonly [string, number])[]): BlockList {
  const list = new BlockList()
  for (const [network, prefix] of ranges) {
    list.addSubnet(network, prefix, isIP(network) === 6 ? 'ipv6' : 'ipv4')
  }
  return list
}

function contains(list: BlockList, address: string): boolean {
  return list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')
}

function cidrOf(entry: string): [string, number][] {
  const [network = '', prefix] = entry.split('/')
  const bare = bareAddress(network)
  const version = isIP(bare)
  if (version === 0) return []
  const whole = version === 6 ? 128 : 32
  const bits = prefix === undefined ? whole : /^\d+$/.test(prefix) ? Number(prefix) : Number.NaN
  return bits <= whole ? [[bare, bits]] : []
}
