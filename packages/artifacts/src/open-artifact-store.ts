import type { ArtifactStore } from './artifact-store.ts'
import type { ArtifactPlace } from './config.ts'
import { folderStore } from './folder-store.ts'
import { s3Store } from './s3-store.ts'

/** Nothing is made or connected here: a store that is away fails the first use. */
export function openArtifactStore(place: ArtifactPlace): ArtifactStore {
  return place.kind === 'folder' ? folderStore(place.folder) : s3Store(place)
}
